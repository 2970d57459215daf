"""Files that a call reads, marked with the call.

All sessions of a JVM share one cache, by plan. How a file is read depends on settings of the session that are not part
of the plan, such as its timezone: without a mark, what one call has cached would be taken for what another one reads.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

__all__ = ["CALL_SETTING", "reader_of_call"]

CALL_SETTING = "servo.call"
"""The setting that names the call a session belongs to. Sessions that Spark clones from it, as for a cache, have it."""

# Sources of other kinds may refuse an option that they do not know, or hand it on to a database.
_FILE_FORMATS = ("csv", "json", "orc", "parquet", "text", "xml")


def reader_of_call(reader: Any, call: str) -> Any:
    """The reader, such that what it reads from files is marked with the call; as it is outside of calls."""
    if call:
        kind: Any = type(reader)
        reader.__class__ = _marking(kind)
        reader._servo_call = call
    return reader


@cache
def _marking(kind: Any) -> type[Any]:
    """The class of readers that mark files. The readers of classic sessions and of Connect are different classes."""

    def marked(name: str) -> Any:
        original = getattr(kind, name)

        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.option(CALL_SETTING, self._servo_call)
            return original(self, *args, **kwargs)

        return method

    def format(self: Any, source: str) -> Any:  # noqa: A001 (as PySpark has it)
        if isinstance(source, str) and source.lower() in _FILE_FORMATS:
            self.option(CALL_SETTING, self._servo_call)
        return kind.format(self, source)

    # `load` is not among them: without a format it is that of the session, which `spark.sql.sources.default` says.
    methods = {name: marked(name) for name in _FILE_FORMATS if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**methods, "format": format, "__module__": kind.__module__})
