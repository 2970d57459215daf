"""What was staged for a checkpoint: how it came about, and whether it is still there."""

from __future__ import annotations

from servo.controllers.checkpoints import Checkpoint
from servo.errors import Conflict, DataNotFound, LedgerCorrupt
from servo.events import decode
from servo.events.columns import spread
from servo.events.model import TaskFinished
from servo.execution.protocol import Place
from servo.runtime.wiring import Project
from servo.status.exclusions import THAW

_NEARBY = 8  # events before a checkpoint among which is what staged it: they are recorded together
_PATIENCE = 30.0  # seconds for the tail to be folded
_FROZEN = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND frozen AND partition_key IN (SELECT unnest($keys)) ORDER BY partition_key
"""


def require_none_frozen(project: Project, checkpoint: Checkpoint) -> None:
    """Nothing becomes current in the place of a partition that was frozen while it waited."""
    asked = checkpoint.asked
    keys = [key for key in asked.partitions.keys if key not in checkpoint.overtaken]
    rows = project.reader.query(_FROZEN, {"asset_id": asked.asset_id, "keys": keys}, fresh=True, timeout=_PATIENCE).rows
    if rows:
        frozen = [key for (key,) in rows]
        few = ", ".join(frozen[:3]) + (f" and {len(frozen) - 3} more" if len(frozen) > 3 else "")
        raise Conflict(
            f"{asked.asset_key} {few} {'is' if len(frozen) == 1 else 'are'} frozen, and approving checkpoint "
            f"{asked.checkpoint_id} would replace what is there",
            hint=f"reject it, or {THAW.format(f'{asked.asset_key} {frozen[0]}')}",
        )


def require_files(project: Project, checkpoint: Checkpoint) -> None:
    """Nothing becomes current of which a file is gone, or not, byte by byte, what was staged."""
    asked, partitions = checkpoint.asked, checkpoint.asked.partitions
    count = len(partitions)
    columns = zip(
        partitions.keys,
        partitions.materialization_ids(),
        spread(partitions.files, count),
        spread(partitions.bytes, count),
        strict=True,
    )
    places = []
    for key, name, files, size in columns:
        if key in checkpoint.overtaken or name is None:
            continue
        place = Place(asset_id=asked.asset_id, key=key, materialization_id=name)
        if project.storage.measure(place) != (files, size):
            raise DataNotFound(
                f"the files of materialization {name} are not those that were staged ({files}, {size} bytes)",
                hint="reject it, and run it again",
            )
        places.append(place)
    # Last, since it reads them all.
    project.storage.require_seals(places)


def staging_of(project: Project, checkpoint: Checkpoint) -> TaskFinished:
    """The fact that its partitions were staged, which says from what and by which code."""
    asked = checkpoint.asked
    after = max(checkpoint.position - 1 - _NEARBY, 0)
    for event in reversed(project.history.read(after, checkpoint.position - 1 - after)):
        fact = decode(event)
        if isinstance(fact, TaskFinished) and (fact.run_id, fact.task_key) == (asked.run_id, asked.task_key):
            return fact
    raise LedgerCorrupt(
        f"nothing says how checkpoint {asked.checkpoint_id} was staged", hint="run `servo ledger verify`"
    )
