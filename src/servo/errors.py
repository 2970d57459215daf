"""Every error that Servo raises on purpose.

    ServoError
    ├── InvalidInput               exit 2: what was asked for cannot be meant
    │   ├── InvalidName
    │   ├── InvalidAssetKey
    │   ├── InvalidPartitionKey
    │   ├── InvalidCanonicalValue
    │   ├── InvalidSettings
    │   │   └── ForeignSecret
    │   ├── InvalidQuery
    │   ├── InvalidDefinition      with the file and line of the definition
    │   ├── InvalidPartition
    │   ├── InvalidSelection
    │   └── InputsMissing
    ├── NotFound                   exit 3: it is not there
    │   ├── LedgerNotFound
    │   ├── EventNotFound
    │   ├── AssetNotFound
    │   ├── RunNotFound
    │   ├── CheckpointNotFound
    │   ├── BackfillNotFound
    │   ├── ScheduleNotFound
    │   ├── SensorNotFound
    │   ├── TokenNotFound
    │   └── DataNotFound
    ├── Conflict                   exit 4: somebody else was first; look again, decide again
    │   ├── AppendConflict
    │   ├── IdempotencyMismatch
    │   ├── BackfillConflict
    │   └── FencedOut
    ├── NotAllowed                 exit 1, like all below: it is for others to do
    ├── LedgerError
    │   ├── AppendOutcomeUnknown
    │   ├── LedgerUnavailable
    │   ├── LedgerCorrupt
    │   ├── SchemaTooNew
    │   └── StorageFailed
    ├── EventError
    │   └── UndecodableEvent
    ├── ProjectionError
    │   ├── ProjectionDamaged
    │   ├── ProjectionMissing
    │   └── ProjectionLagging
    ├── TaskError                  an attempt at a task came to nothing
    │   ├── UserCodeFailed
    │   ├── OutputRefused
    │   ├── WorkCancelled
    │   ├── SessionsLost
    │   └── WorkerLost
    └── EnvironmentProblem
        ├── EvaluationUnavailable
        ├── JavaMissing
        ├── SparkUnavailable
        │   └── SessionLost
        ├── ServerUnreachable
        └── MissingExtra

`code` is stable and meant for programs; `message` says what is wrong and `hint` what to do about it.
"""
# ruff: noqa: N818 (a name says what happened, and the tree says that it is an error)

from __future__ import annotations

from typing import Any, ClassVar


class ServoError(Exception):
    """The root: catch this to catch everything that Servo raises on purpose."""

    code: ClassVar[str] = "servo-error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone, which fails where more is required.
        return _revive, (type(self), self.args), self.__dict__


def _revive(kind: type[ServoError], args: tuple[Any, ...]) -> ServoError:
    return kind.__new__(kind, *args)


class InvalidInput(ServoError):
    """What was asked for cannot be meant. `field` is the part of the request that is wrong, where it has a name."""

    code = "invalid-input"
    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class InvalidName(InvalidInput):
    """Not a name of a tenant, a workspace or a dimension, or not a well-formed id."""

    code = "invalid-name"


class InvalidAssetKey(InvalidInput):
    """Not `namespace/name`."""

    code = "invalid-asset-key"


class InvalidPartitionKey(InvalidInput):
    """Not the canonical text of a partition key, or a value that no partition key can hold."""

    code = "invalid-partition-key"


class InvalidCanonicalValue(InvalidInput):
    """A value that canonical JSON cannot hold, or text that is not canonical JSON."""

    code = "invalid-canonical-value"


class InvalidSettings(InvalidInput):
    """A setting is missing, unknown or out of bounds."""

    code = "invalid-settings"


class ForeignSecret(InvalidSettings):
    """The tenant's secret here is not the one that the ledger was begun with."""

    code = "foreign-secret"


class InvalidQuery(InvalidInput):
    """A filter, selection or SQL text that cannot be answered."""

    code = "invalid-query"


class InvalidDefinition(InvalidInput):
    """An asset, schedule or sensor that cannot be meant; the message begins with the file and line of it."""

    code = "invalid-definition"


class InvalidPartition(InvalidInput):
    """A partition, or a set of them, that the asset's definition does not have."""

    code = "invalid-partition"


class InvalidSelection(InvalidInput):
    """A selection of assets that does not read, or that selects nothing."""

    code = "invalid-selection"


class InputsMissing(InvalidInput):
    """Partitions would be computed from upstream partitions that are not there and not part of the run."""

    code = "inputs-missing"


class NotFound(ServoError):
    """It is not there, or not visible to whoever asks."""

    code = "not-found"
    exit_code = 3


class LedgerNotFound(NotFound):
    """There is no ledger at that address."""

    code = "ledger-not-found"


class EventNotFound(NotFound):
    """No event has that id or position."""

    code = "event-not-found"


class AssetNotFound(NotFound):
    """No asset has that name or key."""

    code = "asset-not-found"


class RunNotFound(NotFound):
    """No run has that id."""

    code = "run-not-found"


class CheckpointNotFound(NotFound):
    """No checkpoint has that id."""

    code = "checkpoint-not-found"


class BackfillNotFound(NotFound):
    """No backfill has that id or name."""

    code = "backfill-not-found"


class ScheduleNotFound(NotFound):
    """No schedule has that id or name."""

    code = "schedule-not-found"


class SensorNotFound(NotFound):
    """No sensor has that id or name."""

    code = "sensor-not-found"


class TokenNotFound(NotFound):
    """No token has that id or name."""

    code = "token-not-found"


class DataNotFound(NotFound):
    """A partition has no such materialization, or its files are gone."""

    code = "data-not-found"


class Conflict(ServoError):
    """Somebody else was first: look again, decide again."""

    code = "conflict"
    exit_code = 4


class AppendConflict(Conflict):
    """The append's condition did not hold, so nothing of it was written."""

    code = "append-conflict"

    def __init__(self, message: str, *, expected: int, actual: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual


class IdempotencyMismatch(Conflict):
    """The idempotency key is already in the ledger with another payload."""

    code = "idempotency-mismatch"

    def __init__(
        self, message: str, *, idempotency_key: str, event_id: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.idempotency_key = idempotency_key
        self.event_id = event_id  # whose key it is


class BackfillConflict(Conflict):
    """A backfill is not in a state, or not at the version, in which this can be done to it."""

    code = "backfill-conflict"

    def __init__(
        self, message: str, *, expected: int | None = None, actual: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual


class FencedOut(Conflict):
    """A newer compactor or worker holds the epoch, so this one must stop."""

    code = "fenced-out"


class NotAllowed(ServoError):
    """Whoever asks is known, and this is not theirs to do."""

    code = "not-allowed"


class LedgerError(ServoError):
    """The ledger could not do what it was asked."""

    code = "ledger-error"


class AppendOutcomeUnknown(LedgerError):
    """The connection was lost at commit; repeating the same append is safe."""

    code = "append-outcome-unknown"


class LedgerUnavailable(LedgerError):
    """The ledger cannot be reached or stays locked; nothing was written."""

    code = "ledger-unavailable"


class LedgerCorrupt(LedgerError):
    """What is stored contradicts itself: a broken chain, a gap or a damaged file."""

    code = "ledger-corrupt"


class SchemaTooNew(LedgerError):
    """The ledger was written by a newer Servo than this one."""

    code = "schema-too-new"


class StorageFailed(LedgerError):
    """The disk is full, read-only or failing."""

    code = "storage-failed"


class EventError(ServoError):
    """An event is not what its type promises."""

    code = "event-error"


class UndecodableEvent(EventError):
    """The stored bytes of a known event type do not decode."""

    code = "undecodable-event"


class ProjectionError(ServoError):
    """The projections cannot give the answer that was asked for."""

    code = "projection-error"


class ProjectionDamaged(ProjectionError):
    """A file of the projection is missing, cut short or changed; a replay rebuilds it."""

    code = "projection-damaged"


class ProjectionMissing(ProjectionError):
    """Nothing has been projected yet."""

    code = "projection-missing"


class ProjectionLagging(ProjectionError):
    """The projection did not catch up in time."""

    code = "projection-lagging"

    def __init__(
        self,
        message: str,
        *,
        behind_events: int,
        behind_seconds: float | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.behind_events = behind_events
        self.behind_seconds = behind_seconds


class TaskError(ServoError):
    """An attempt at a task came to nothing. Only `retryable` ones deserve another attempt."""

    code = "task-error"
    retryable: ClassVar[bool] = True


class UserCodeFailed(TaskError):
    """An asset's function raised, or Spark did while it computed what the function asked for."""

    code = "user-code-failed"


class OutputRefused(TaskError):
    """What a function returned cannot be published: no DataFrame, a changed schema, rows of other partitions."""

    code = "output-refused"
    retryable = False


class WorkCancelled(TaskError):
    """Somebody cancelled the run while the task was at work."""

    code = "work-cancelled"
    retryable = False


class SessionsLost(TaskError):
    """A task lost its Spark session so often that it is the likely reason."""

    code = "sessions-lost"
    retryable = False


class WorkerLost(TaskError):
    """A worker was not heard of for longer than its lease."""

    code = "worker-lost"


class EnvironmentProblem(ServoError):
    """Something that Servo needs is not on this machine."""

    code = "environment-problem"


class EvaluationUnavailable(EnvironmentProblem):
    """Nobody could be asked about a sensor, and nothing was recorded: try again."""

    code = "evaluation-unavailable"


class JavaMissing(EnvironmentProblem):
    """Spark needs Java 17 or newer and none was found."""

    code = "java-missing"


class SparkUnavailable(EnvironmentProblem):
    """Spark did not start, or the cluster cannot be reached."""

    code = "spark-unavailable"


class SessionLost(SparkUnavailable):
    """The Spark session ended while a task was at work, as when its JVM dies. It is never the asset's failure."""

    code = "session-lost"

    def __init__(self, message: str, *, hint: str, out_of_memory: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.out_of_memory = out_of_memory
        self.session: object | None = None  # the session, to tell one that several tasks lost from several sessions


class ServerUnreachable(EnvironmentProblem):
    """The server does not answer, or with nothing that a server of Servo answers."""

    code = "server-unreachable"


class MissingExtra(EnvironmentProblem):
    """An optional part of Servo is not installed."""

    code = "missing-extra"


# What passes by itself: whoever goes on for long tries again.
PASSING = (LedgerUnavailable, AppendOutcomeUnknown, StorageFailed, ProjectionError)
