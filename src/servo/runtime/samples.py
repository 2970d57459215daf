"""How many partitions of a batch are also computed alone: in the first runs of a code version, then now and then."""

from __future__ import annotations

from hashlib import sha256

from servo.controllers.dispatch import Claim
from servo.runtime.wiring import Project

__all__ = ["samples_of"]

_SAMPLED = """
    SELECT count(DISTINCT run_id) FILTER (WHERE sample_verdict IN ('EQUAL', 'CLOSE') AND run_id <> $run_id),
           count(*) FILTER (WHERE sample_verdict = 'DIFFERENT')
    FROM tasks WHERE asset_id = $asset_id AND code_version = $code_version AND partitions_sampled > 0
"""
_PATIENCE = 60.0  # seconds for the tail to be folded


def samples_of(project: Project, claim: Claim) -> int:
    """How many partitions of this task's batches to sample, by the project's settings.

    Where a sample of the same code has ever differed, all are: another sample might miss what that one found. Runs
    whose samples show nothing, as where the function fails alone, do not count as first runs.
    """
    settings = project.settings.batch
    if not settings.sample_partitions:
        return 0
    parameters = {"asset_id": claim.asset_id, "code_version": claim.code_version, "run_id": claim.run_id}
    answer = project.reader.query(_SAMPLED, parameters, fresh=True, timeout=_PATIENCE)
    runs, differed = answer.rows[0]
    if differed:
        return len(claim.keys)
    now_and_then = settings.sample_every and _number(claim) % settings.sample_every == 0
    return settings.sample_partitions if now_and_then or runs < settings.sample_runs else 0


def _number(claim: Claim) -> int:
    """A number that follows from the task: whoever asks, the same tasks are sampled."""
    return int.from_bytes(sha256(f"{claim.run_id}:{claim.task_key}".encode()).digest()[:8])
