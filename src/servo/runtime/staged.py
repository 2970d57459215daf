"""What was staged for a checkpoint: how it came about, and whether it is still there."""

from __future__ import annotations

from servo.controllers.checkpoints import Checkpoint
from servo.errors import DataNotFound, LedgerCorrupt
from servo.events import decode
from servo.events.columns import spread
from servo.events.model import TaskFinished
from servo.execution.protocol import Place
from servo.runtime.wiring import Project

_NEARBY = 8  # events before a checkpoint among which is what staged it: they are recorded together


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
