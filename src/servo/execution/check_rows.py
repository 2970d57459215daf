"""Some of the rows that a failed check is about, as text: what people look at first.

They become part of what the check observed, and so of the ledger, which keeps them: few rows, few columns, short
values, and nothing of a column whose name says that it holds a secret. `limits.check_rows = 0` keeps them out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from servo.assets.checks import Check
from servo.execution.checking import Audit, Call, Guard, Results
from servo.execution.output import INDEX
from servo.execution.secrecy import is_secret

__all__ = ["with_rows"]

_MOST_PARTITIONS = 20  # of a batch, each with rows of its own
_MOST_COLUMNS = 5
_LONGEST_VALUE = 40
_LONGEST = 400
_PLACE = "servo_place"


def with_rows(
    audit: Audit,
    results: Mapping[int, Results],
    read: Callable[[], DataFrame],
    guard: Guard,
    call: Callable[[], Call],
    *,
    most: int,
) -> dict[int, Results]:
    """The results of checks by partition, each that failed with some of its rows; `read` and the rest as in `ask`."""
    told = {index: dict(own) for index, own in results.items()}
    failed: dict[int, list[int]] = {}
    for index, own in results.items():
        for number, result in own.items():
            if not result.passed and audit.has_rows(number):
                failed.setdefault(number, []).append(index)
    if not failed or most < 1:
        return told
    with call():
        staged = read()
        for number, indexes in failed.items():
            try:
                found = _rows(audit, number, staged, indexes[:_MOST_PARTITIONS], most)
            except Exception as failure:  # noqa: BLE001 - the check has its result without its rows
                guard(failure)
                continue
            for index, rows in found.items():
                result = told[index][number]
                such = "; ".join(rows)
                such = such if len(such) <= _LONGEST else f"{such[:_LONGEST]}…"
                told[index][number] = msgspec.structs.replace(result, observed=f"{result.observed}, such as {such}")
    return told


def _rows(audit: Audit, number: int, staged: DataFrame, indexes: Sequence[int], most: int) -> dict[int, list[str]]:
    """Rows of each partition as text, in the columns that tell most."""
    wrong, order = audit.wrong_rows(number, staged.where(F.col(INDEX).isin(*indexes)))
    if len(indexes) > 1:
        each = Window.partitionBy(INDEX).orderBy(*(order or [F.lit(1)]))
        wrong = wrong.withColumn(_PLACE, F.row_number().over(each)).where(F.col(_PLACE) <= most)
    elif order:
        wrong = wrong.orderBy(*order)
    columns = _columns(audit, audit.check(number))
    short = [
        F.substring(column.cast("string"), 1, _LONGEST_VALUE + 1).alias(f"c{place}")
        for place, column in enumerate(columns.values())
    ]
    found: dict[int, list[str]] = {}
    for index, *values in wrong.select(INDEX, *short).limit(most * len(indexes)).collect():
        pairs = zip(columns, values, strict=True)
        found.setdefault(index, []).append(", ".join(f"{name}={_value(name, value)}" for name, value in pairs))
    return found


def _columns(audit: Audit, check: Check) -> dict[str, Column]:
    """Those that the check is about, and then the first of the asset: they mostly tell which row it is."""
    said = set(re.findall(r"\w+", str(check.parameters.get("expression", "")).lower()))
    others = [name for name in audit.names if not is_secret(name)]
    names = [*check.columns, *(name for name in audit.names if name.lower() in said), *others]
    return {name: audit.column(name) for name in list(dict.fromkeys(names))[:_MOST_COLUMNS]}


def _value(name: str, value: str | None) -> str:
    if value is None:
        return "NULL"
    if is_secret(name, value):
        return "***"
    value = value if value.isprintable() else repr(value)[1:-1]
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
