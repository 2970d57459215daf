"""What is answered: frozen structs that server, client and command line share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["build"]

T = TypeVar("T")


def build(kind: type[T], *sources: Any, **fields: Any) -> T:
    """Build an answer of these fields; the others have the names that a source, a row or an object, has them under.

    The first source that has a field is asked for it. What no source has keeps its default.
    """
    for name in kind.__struct_fields__:  # type: ignore[attr-defined]  # every answer is a struct
        for source in sources if name not in fields else ():
            if isinstance(source, Mapping):
                if name in source:
                    fields[name] = source[name]
                    break
            elif hasattr(source, name):
                fields[name] = getattr(source, name)
                break
    return kind(**fields)
