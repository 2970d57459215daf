"""Checks on staged data: counted while it is written wherever possible, the others in one more job for all.

Every check but a function's comes down to a number of rows that are wrong. Data is told apart by the column INDEX, so
that one partition is simply a batch of one.

Some of the rows that a failed check is about are shown as text: what people look at first. They become part of what
the check observed, and so of the ledger, which keeps them: few rows, few columns, short values, and nothing of a column
whose name says that it holds a secret. `limits.check_rows = 0` keeps them out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from servo.assets import Asset
from servo.assets.checks import Check, value_of
from servo.execution.content_hash import named
from servo.execution.failures import explain
from servo.execution.output import INDEX, counted_rows, literal
from servo.execution.protocol import CheckResult
from servo.execution.settings import is_secret

_ALIKE = "servo_alike"
_AT_ONCE = 64  # questions in one job: a plan with thousands of branches takes longer to make than to run
Results = dict[int, CheckResult]  # by the number of the check
Guard = Callable[[BaseException], None]
Call = AbstractContextManager[SparkSession]
_MOST_PARTITIONS = 20  # of a batch, each with rows of its own
_MOST_COLUMNS = 5
_LONGEST_VALUE = 40
_LONGEST = 400
_PLACE = "servo_place"


class Audit:
    """The checks of an asset, for output of one schema.

    `guard` is shown every failure, and raises if it is not the check's own. `call` gives a session of its own: each
    call of a check's function has one, and all checks in SQL have one together. Of a failed check, `most`
    rows are shown.
    """

    def __init__(
        self, asset: Asset, schema: StructType, *, guard: Guard, call: Callable[[], Call], most: int = 0
    ) -> None:
        self._asset = asset
        self._schema = schema
        self._guard = guard
        self._call = call
        self._most = most
        self._counted: dict[int, Column] = {}
        self._asked: list[int] = []
        self._broken: Results = {}
        for number, check in enumerate(asset.spec.checks):
            try:
                if check.kind in ("not_null", "range", "accepted_values"):
                    self._counted[number] = _wrong(check, schema)
                elif check.kind == "unique":
                    for column in check.columns:
                        _find(schema, column)
                    self._asked.append(number)
                elif check.kind != "row_count":
                    self._asked.append(number)
            except _Unanswerable as problem:
                self._broken[number] = _result(check, passed=False, observed=str(problem))

    def aggregates(self) -> list[Column]:
        """What to count in the pass that also counts the rows."""
        return [F.count(F.when(wrong, True)).alias(_name(number)) for number, wrong in self._counted.items()]

    def results(
        self, rows: Mapping[int, int], metrics: Mapping[int, Mapping[str, Any]], read: Callable[[], DataFrame]
    ) -> dict[int, Results]:
        """The results of all checks, by partition.

        `rows` counts by partition, `metrics` are what was counted in the pass that wrote the data, for partitions that
        have rows, and what `read` gives has the column INDEX.
        """
        results = {index: self._judge(count, metrics.get(index)) for index, count in rows.items()}
        self._ask(read, rows, results)
        self._show_rows(read, results)
        return results

    def _judge(self, rows: int, metrics: Mapping[str, Any] | None) -> Results:
        """The results of what was counted in that pass."""
        results = dict(self._broken)
        for number, check in enumerate(self._asset.spec.checks):
            if number in self._counted:
                wrong = int(metrics[_name(number)]) if metrics and rows else 0
                results[number] = _counted(check, wrong, rows)
            elif check.kind == "row_count":
                least, most = check.parameters.get("min"), check.parameters.get("max")
                passed = (least is None or rows >= least) and (most is None or rows <= most)
                results[number] = _result(check, passed=passed, observed=counted_rows(rows))
        return results

    # ── those that need to see the staged data ───────────────────────────────────────────────────────────────────────

    def _ask(self, read: Callable[[], DataFrame], rows: Mapping[int, int], results: dict[int, Results]) -> None:
        checks = [(number, self._asset.spec.checks[number]) for number in self._asked]
        for number, check in checks:
            if check.kind == "function":
                for index in rows:
                    with self._call():
                        results[index][number] = self._answer_of(check, _only(read(), index))
        in_sql = [(number, check) for number, check in checks if check.kind != "function"]
        if in_sql:
            with self._call():
                self._ask_sql(in_sql, read(), rows, results)

    def _ask_sql(
        self, checks: list[tuple[int, Check]], staged: DataFrame, rows: Mapping[int, int], results: dict[int, Results]
    ) -> None:
        questions: list[_Question] = []
        for number, check in checks:
            try:
                questions += _questions(number, check, self._schema, staged, list(rows))
            except Exception as failure:  # noqa: BLE001 - whatever a user's SQL meets is the check's result
                for index in rows:
                    results[index][number] = self._failed(check, failure)
        for start in range(0, len(questions), _AT_ONCE):
            self._answer(questions[start : start + _AT_ONCE], rows, results)

    def _answer(self, questions: list[_Question], rows: Mapping[int, int], results: dict[int, Results]) -> None:
        """Ask in one job; if that fails one by one, so that only the check that is at fault fails."""
        answers: dict[tuple[int, int], list[int | None]] = {}
        try:
            united = questions[0].frame
            for question in questions[1:]:
                united = united.unionAll(question.frame)
            for number, index, wrong in united.collect():
                answers.setdefault((number, index), []).append(wrong)
        except Exception as failure:  # noqa: BLE001 - whatever a user's SQL meets is the check's result
            if len(questions) > 1:
                self._guard(failure)
                for question in questions:
                    self._answer([question], rows, results)
                return
            asked = questions[0]
            for index in asked.indexes:
                results[index][asked.number] = self._failed(self._asset.spec.checks[asked.number], failure)
            return
        for question in questions:
            for index in question.indexes:
                # Grouped counts leave out what they find nothing of; a statement must say its number.
                answer = answers.get((question.number, index), [] if question.own_words else [0])
                check = self._asset.spec.checks[question.number]
                results[index][question.number] = _judged(check, answer, rows[index])

    def _answer_of(self, check: Check, data: DataFrame) -> CheckResult:
        """What a check's function says of the data."""
        if check.function is None:
            return _result(check, passed=False, observed="its function is not loaded")
        try:
            answer = check.function(data)
        except Exception as failure:  # noqa: BLE001 - whatever a user's function raises is the check's result
            return self._failed(check, failure)
        observed = None
        if isinstance(answer, tuple) and len(answer) == 2:
            answer, observed = answer
        if type(answer).__name__ not in ("bool", "bool_"):
            kind = type(answer).__qualname__
            return _result(check, passed=False, observed=f"it returned {kind}, neither True nor False")
        return _result(check, passed=bool(answer), observed=None if observed is None else str(observed))

    def _failed(self, check: Check, failure: BaseException) -> CheckResult:
        if isinstance(failure, _Unanswerable):
            return _result(check, passed=False, observed=str(failure))
        self._guard(failure)
        return _result(check, passed=False, observed=explain(failure, self._asset))

    # ── rows that a failed check is about ────────────────────────────────────────────────────────────────────────────

    def _show_rows(self, read: Callable[[], DataFrame], results: dict[int, Results]) -> None:
        """Add some of its rows to each result that failed."""
        failed: dict[int, list[int]] = {}
        for index, own in results.items():
            for number, result in own.items():
                if not result.passed and self._has_rows(number):
                    failed.setdefault(number, []).append(index)
        if not failed or self._most < 1:
            return
        with self._call():
            staged = read()
            for number, indexes in failed.items():
                try:
                    found = self._some_rows(number, staged, indexes[:_MOST_PARTITIONS])
                except Exception as failure:  # noqa: BLE001 - the check has its result without its rows
                    self._guard(failure)
                    continue
                for index, rows in found.items():
                    result = results[index][number]
                    such = "; ".join(rows)
                    such = such if len(such) <= _LONGEST else f"{such[:_LONGEST]}…"
                    told = f"{result.observed}, such as {such}"
                    results[index][number] = msgspec.structs.replace(result, observed=told)

    def _has_rows(self, number: int) -> bool:
        """Whether a check is about rows that can be shown, and could be asked at all."""
        check = self._asset.spec.checks[number]
        about_rows = number in self._counted or check.kind == "unique" or "expression" in check.parameters
        return about_rows and number not in self._broken

    def _some_rows(self, number: int, staged: DataFrame, indexes: Sequence[int]) -> dict[int, list[str]]:
        """Rows of each partition as text, in the columns that tell most."""
        wrong, order = self._wrong_rows(number, staged.where(F.col(INDEX).isin(*indexes)))
        if len(indexes) > 1:
            each = Window.partitionBy(INDEX).orderBy(*(order or [F.lit(1)]))
            wrong = wrong.withColumn(_PLACE, F.row_number().over(each)).where(F.col(_PLACE) <= self._most)
        elif order:
            wrong = wrong.orderBy(*order)
        columns = self._columns(self._asset.spec.checks[number])
        short = [
            F.substring(column.cast("string"), 1, _LONGEST_VALUE + 1).alias(f"c{place}")
            for place, column in enumerate(columns.values())
        ]
        found: dict[int, list[str]] = {}
        for index, *values in wrong.select(INDEX, *short).limit(self._most * len(indexes)).collect():
            pairs = zip(columns, values, strict=True)
            found.setdefault(index, []).append(", ".join(f"{name}={_value(name, value)}" for name, value in pairs))
        return found

    def _wrong_rows(self, number: int, staged: DataFrame) -> tuple[DataFrame, list[Column]]:
        """The rows that a check finds wrong, and how to order them so that those of one kind come together."""
        check = self._asset.spec.checks[number]
        if number in self._counted:
            return staged.where(self._counted[number]), []
        if check.kind == "unique":
            columns = [_find(self._schema, name)[0] for name in check.columns]
            alike = F.count(F.lit(1)).over(Window.partitionBy(INDEX, *columns))
            there = reduce(and_, [column.isNotNull() for column in columns])
            return staged.where(there).withColumn(_ALIKE, alike).where(F.col(_ALIKE) > 1), columns
        return staged.where(~F.expr(check.parameters["expression"])), []

    def _columns(self, check: Check) -> dict[str, Column]:
        """Those that the check is about, and then the first of the asset: they mostly tell which row it is."""
        own = [name for name in self._schema.names if name not in self._asset.spec.partitions.names]
        said = set(re.findall(r"\w+", str(check.parameters.get("expression", "")).lower()))
        others = [name for name in own if not is_secret(name)]
        names = [*check.columns, *(name for name in own if name.lower() in said), *others]
        return {name: _find(self._schema, name)[0] for name in list(dict.fromkeys(names))[:_MOST_COLUMNS]}


class _Unanswerable(Exception):  # noqa: N818 (as in servo.errors)
    """The check cannot be asked of data of this schema."""


def _wrong(check: Check, schema: StructType) -> Column:
    """Whether a row is wrong."""
    if check.kind == "not_null":
        return reduce(or_, [_find(schema, name)[0].isNull() for name in check.columns])
    column, kind = _find(schema, check.columns[0])
    if check.kind == "accepted_values":
        values = [
            _comparable(value, check.columns[0], kind) for value in check.parameters["values"] if value is not None
        ]
        return column.isNotNull() & (~column.isin(*values) if values else F.lit(True))
    bounds = check.parameters
    wrong = F.lit(False)
    if "min" in bounds:
        wrong = wrong | (column < _comparable(bounds["min"], check.columns[0], kind))
    if "max" in bounds:
        wrong = wrong | (column > _comparable(bounds["max"], check.columns[0], kind))
    return wrong


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of (number of the check, partition, wrong rows), and for which partitions it has the answer."""

    number: int
    indexes: list[int]
    frame: DataFrame
    own_words: bool = False


def _questions(
    number: int, check: Check, schema: StructType, staged: DataFrame, indexes: list[int]
) -> Iterator[_Question]:
    def counting(frame: DataFrame, wrong: Column) -> DataFrame:
        counted = frame.groupBy(INDEX).agg(wrong.cast("bigint").alias("wrong"))
        return counted.select(F.lit(number).alias("number"), INDEX, "wrong")

    if check.kind == "unique":
        columns = [_find(schema, name)[0].alias(f"c{place}") for place, name in enumerate(check.columns)]
        names = [f"c{place}" for place in range(len(columns))]
        # As in SQL, nulls equal nothing: that they are there is for not_null to find.
        values = staged.select(INDEX, *columns).where(" AND ".join(f"{name} IS NOT NULL" for name in names))
        repeated = values.groupBy(INDEX, *names).agg((F.count(F.lit(1)) - 1).alias("more")).where("more > 0")
        yield _Question(number=number, indexes=indexes, frame=counting(repeated, F.sum("more")))
    elif "expression" in check.parameters:
        wrong = F.count(F.when(~F.expr(check.parameters["expression"]), True))
        yield _Question(number=number, indexes=indexes, frame=counting(staged, wrong))
    else:
        for index in indexes:
            answer = staged.sparkSession.sql(check.parameters["statement"], data=_only(staged, index))
            if len(answer.columns) != 1:
                raise _Unanswerable(f"it selects {len(answer.columns)} columns, not one number: SELECT count(*) FROM …")
            wrong = named(answer.columns[0]).cast("bigint").alias("wrong")
            frame = answer.select(F.lit(number).alias("number"), F.lit(index).alias(INDEX), wrong)
            yield _Question(number=number, indexes=[index], frame=frame, own_words=True)


def _find(schema: StructType, path: str) -> tuple[Column, DataType]:
    """A column, or a field inside one (`address.city`)."""
    names = {field.name.lower(): field for field in schema}
    if (whole := names.get(path.lower())) is not None:
        return named(whole.name), whole.dataType
    outer, *inner = path.split(".")
    found = names.get(outer.lower())
    if found is not None and inner:
        column, kind = named(found.name), found.dataType
        for name in inner:
            fields = {field.name.lower(): field for field in kind} if isinstance(kind, StructType) else {}
            if (field := fields.get(name.lower())) is None:
                break
            column, kind = column.getField(field.name), field.dataType
        else:
            return column, kind
    raise _Unanswerable(f"there is no column {path!r}; there are {', '.join(schema.names)}")


_FITS: list[tuple[type | tuple[type, ...], tuple[type[DataType], ...]]] = [
    (bool, (BooleanType,)),
    ((int, float, Decimal), (NumericType,)),
    (datetime, (TimestampType, TimestampNTZType, DateType)),
    (date, (DateType, TimestampType, TimestampNTZType)),
]


def _comparable(given: Any, name: str, kind: DataType) -> Column:
    """A value to compare a column with. Spark would rather fail the whole job than say that they do not fit."""
    value = value_of(given)
    if isinstance(value, str):
        if isinstance(kind, StringType):
            return F.lit(value)
        if isinstance(kind, DateType | TimestampType | TimestampNTZType):
            try:
                datetime.fromisoformat(value)
            except ValueError:
                raise _Unanswerable(f"{value!r} is not a date, as column {name!r} is") from None
            return F.lit(value).cast(kind)
    for types, kinds in _FITS:
        if isinstance(value, types):
            if isinstance(kind, kinds):
                return literal(value, kind) if isinstance(value, datetime) else F.lit(value)
            break
    raise _Unanswerable(f"column {name!r} is {kind.simpleString()}, which does not compare with {value!r}")


def _only(staged: DataFrame, index: int) -> DataFrame:
    return staged.where(F.col(INDEX) == index).drop(INDEX)


def _judged(check: Check, answer: list[int | None], rows: int) -> CheckResult:
    if len(answer) != 1 or answer[0] is None:
        what = "no row" if not answer else "NULL" if len(answer) == 1 else f"{len(answer)} rows"
        return _result(check, passed=False, observed=f"it gave {what}, not one number: SELECT count(*) FROM …")
    return _counted(check, int(answer[0]), rows)


def _counted(check: Check, wrong: int, rows: int) -> CheckResult:
    return _result(check, passed=wrong == 0, observed=f"{wrong:,} of {counted_rows(rows)}")


def _result(check: Check, *, passed: bool, observed: str | None) -> CheckResult:
    return CheckResult(name=check.name, passed=passed, blocking=check.blocking, observed=observed)


def _name(number: int) -> str:
    return f"servo_check_{number}"


def _value(name: str, value: str | None) -> str:
    if value is None:
        return "NULL"
    if is_secret(name, value):
        return "***"
    value = value if value.isprintable() else repr(value)[1:-1]
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
