"""Which asset function is being called here: what such a function reads must be one of its declared inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from servo.errors import InvalidInput
from servo.execution.call_session import call_id, current_call

__all__ = ["function_call", "require_outside_functions"]

_ASSET: ContextVar[str | None] = ContextVar("servo_asset_being_called", default=None)
_BY_SESSION: dict[str, str] = {}  # assets whose function is being called, by the id of the session of that call


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
