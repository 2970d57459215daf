"""SQL in files: numbered migrations, and queries that have a name and a description."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAMED = re.compile(r"^-- name: (\w+)\n(?:-- .*\n)+", re.MULTILINE)


@cache
def queries(dialect: str) -> dict[str, str]:
    """The named queries of a dialect."""
    parts = _NAMED.split((files(__name__) / dialect / "queries.sql").read_text())
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """The migrations of a dialect in order; the schema version is how many have run."""
    folder = files(__name__) / dialect
    names = sorted(item.name for item in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", item.name))
    return tuple((folder / name).read_text() for name in names)
