"""The call of an asset's function: with the inputs of exactly these partitions, and a context if it takes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from servo.execution.call_session import in_session
from servo.execution.context import AssetContext, undeclared
from servo.execution.function_calls import function_call
from servo.execution.output import require_frame
from servo.execution.protocol import Input, Log, Order
from servo.execution.reading import Inputs, indexes
from servo.partitions import Dynamic, PartitionKey, Partitions

__all__ = ["Caller"]


class Caller:
    """Calls the function of one order. Threads may share it."""

    def __init__(self, order: Order, inputs: Inputs, log: Log) -> None:
        self._order = order
        self._inputs = inputs
        self._log = log
        self.keys = [PartitionKey.parse(key) for key in order.keys]
        self.definition = _resolved(order.asset.spec.partitions, self.keys)

    def call(self, spark: SparkSession, outputs: Sequence[int]) -> tuple[DataFrame, AssetContext]:
        """Call the function for these partitions (indexes into the order's keys), in the session of the call.

        Returns its output, as a DataFrame of that session, and the context that the function was given.
        """
        order = self._order

        def frame(source: Input) -> DataFrame:
            chosen = indexes(order, source, outputs)
            source.require_data(order.asset.spec.key, chosen)
            return self._inputs.frame(spark, source, chosen)

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
