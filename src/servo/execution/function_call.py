"""The call of an asset's function: with the inputs of exactly these partitions, and a context if it takes one.

`AssetContext` tells it which partitions are computed, for which run, and the session to work with. `function_call`
marks the thread that calls it: what a function reads must be one of its declared inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from servo.errors import InvalidInput, InvalidPartition
from servo.execution.call_session import call_id, current_call, in_session
from servo.execution.inputs import Inputs, in_one_task, indexes
from servo.execution.output import require_frame
from servo.execution.protocol import Input, Log, Order
from servo.partitions import Dynamic, PartitionKey, Partitions, Window

_ASSET: ContextVar[str | None] = ContextVar("servo_asset_being_called", default=None)
_BY_SESSION: dict[str, str] = {}  # assets whose function is being called, by the id of the session of that call


class Caller:
    """Calls the function of one order. Threads may share it."""

    def __init__(self, order: Order, inputs: Inputs, log: Log) -> None:
        self._order = order
        self._inputs = inputs
        self._log = log
        self.keys = [PartitionKey.parse(key) for key in order.keys]
        self.definition = _resolved(order.asset.spec.partitions, self.keys)

    def call(
        self, spark: SparkSession, outputs: Sequence[int], *, cores_are_busy: bool = False
    ) -> tuple[DataFrame, AssetContext]:
        """Call the function for these partitions (indexes into the order's keys), in the session of the call.

        `cores_are_busy`: others are computed at the same time, so that small inputs are not spread over several tasks.
        Returns its output, as a DataFrame of that session, and the context that the function was given.
        """
        order = self._order

        def frame(source: Input) -> DataFrame:
            chosen = indexes(order, source, outputs)
            source.require_data(order.asset.spec.key, chosen)
            rows = self._inputs.frame(spark, source, chosen)
            return in_one_task(rows) if cores_are_busy else rows

        def read(asset: str) -> DataFrame:
            for source in order.inputs:
                if asset in (source.asset_key, source.asset_key.rpartition("/")[2], source.parameter):
                    return frame(source)
            raise undeclared(order.asset.spec.key, asset, [source.asset_key for source in order.inputs])

        context = AssetContext(
            spark=spark,
            definition=self.definition,
            keys=[self.keys[index] for index in outputs],
            run_id=order.run_id,
            log=self._log,
            read=read,
        )
        given: dict[str, Any] = {
            source.parameter: frame(source) for source in order.inputs if source.parameter is not None
        }
        if order.asset.takes_context:
            given["context"] = context
        with function_call(order.asset.spec.key, spark):
            returned = order.asset.function(**given)
        return in_session(require_frame(returned, order.asset), spark), context


def _resolved(definition: Partitions, keys: Sequence[PartitionKey]) -> Partitions:
    """The definition with the values of dynamic dimensions that are asked for: that they exist was decided before."""
    dynamic = {
        one.name: list(dict.fromkeys(str(key.values[one.name]) for key in keys))
        for one in definition.dimensions
        if isinstance(one, Dynamic)
    }
    return definition.resolved(dynamic) if dynamic else definition


class AssetContext:
    """Handed to a function as `context`.

    `partitions` has one mapping from dimension to value for each partition asked for, and `partition` is the only one
    of them: dates are `datetime.date`, instants are aware and in UTC. `window` is the time that they cover together, if
    any. What the function puts into `metadata` goes to the task's log, as one line of JSON; it is not recorded yet.
    """

    __slots__ = ("_read", "keys", "log", "metadata", "partitions", "run_id", "spark", "window")

    def __init__(
        self,
        *,
        spark: SparkSession,
        definition: Partitions,
        keys: Sequence[PartitionKey],
        run_id: str,
        log: Log,
        read: Callable[[str], DataFrame],
    ) -> None:
        self.spark = spark
        self.keys = tuple(map(str, keys))
        self.partitions: list[Mapping[str, Any]] = [MappingProxyType(key.values) for key in keys]
        self.window = _span(definition, keys)
        self.run_id = run_id
        self.log = log
        self.metadata: dict[str, Any] = {}
        self._read = read

    @property
    def partition(self) -> Mapping[str, Any]:
        """The partition to compute, by dimension; of a batch, only where it is asked for a single one."""
        if len(self.partitions) != 1:
            raise InvalidPartition(
                f"context.partition is one partition, and this call is for {len(self.partitions)}",
                hint="use context.partitions, or declare the asset without batch=True",
            )
        return self.partitions[0]

    def read(self, asset: str) -> DataFrame:
        """The partitions of an upstream that this call depends on, for those that have no parameter."""
        return self._read(asset)


def _span(definition: Partitions, keys: Sequence[PartitionKey]) -> Window | None:
    windows = [window for key in keys if (window := definition.window(key)) is not None]
    if not windows:
        return None
    return Window(start=min(window.start for window in windows), end=max(window.end for window in windows))


def undeclared(asset_key: str, asked: str, declared: Sequence[str]) -> InvalidInput:
    """Why `context.read` refuses."""
    known = ", ".join(declared) or "nothing"
    return InvalidInput(
        f"{asset_key} reads {asked!r:.80} without saying so; it declares {known}", hint="add it to deps="
    )


@contextmanager
def function_call(asset_key: str, session: SparkSession) -> Iterator[None]:
    """The function of an asset is called inside the block, in this session."""
    token, name = _ASSET.set(asset_key), call_id(session)
    if name:
        _BY_SESSION[name] = asset_key
    try:
        yield
    finally:
        _BY_SESSION.pop(name, None)
        _ASSET.reset(token)


def require_outside_functions(read: str, session: SparkSession | None) -> None:
    """Refuse to read an asset from inside the function of another: it would be an input that lineage does not know.

    Known by the thread of the call, by the session that it was given, and in code that Spark runs in its own processes.
    A thread that is in no call of Servo's is taken for one that a function has started, while a function is called.
    """
    asset = _ASSET.get() or (None if session is None else _BY_SESSION.get(call_id(session)))
    if asset is None and current_call() is None:
        asset = " or of ".join(sorted(set(_BY_SESSION.copy().values()))) or None
    if asset is None and TaskContext.get() is None:
        return
    where = "code that runs inside a Spark job" if asset is None else f"the function of {asset}"
    name = read.rpartition("/")[2]
    raise InvalidInput(
        f"servo.read({read!r:.80}) was called in {where}: it would be an input that lineage does not know",
        hint=f"declare it: a parameter named {name}, or deps=[{read!r:.80}] and context.read({name!r:.80});"
        " a mapping in deps= says which partitions",
    )
