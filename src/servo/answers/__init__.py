"""What is answered: frozen structs that server, client and command line share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["build"]

T = TypeVar("T")


def build(kind: type[T], *sources: Any, **fields: Any) -> T:
    """Build an answer of these fields; the others have the names that a source, a row or an object, has them under.

    The first source that has a field is asked for it. A field that is nowhere is a mistake, also where it has a
    default: a source whose field was renamed would go unnoticed.
    """
    for name in kind.__struct_fields__:  # type: ignore[attr-defined]  # every answer is a struct
        if name not in fields:
            fields[name] = _first(name, kind, sources)
    return kind(**fields)


def _first(name: str, kind: type, sources: tuple[Any, ...]) -> Any:
    for source in sources:
        if isinstance(source, Mapping):
            if name in source:
                return source[name]
        elif hasattr(source, name):
            return getattr(source, name)
    raise TypeError(f"nothing says what {kind.__name__}.{name} is")
