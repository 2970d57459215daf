"""The call of an asset's function that computed a partition: with which others, given what, and how it was compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from servo.events.columns import Verdict, spread
from servo.events.model import TaskFinished
from servo.lineage.key_text import key_text
from servo.lineage.story import Source

__all__ = ["CallRecord", "SampleRecord", "call_of", "call_sentences"]

_VERDICTS = {
    Verdict.EQUAL: "it is equal",
    Verdict.CLOSE: "it is equal but for rounding and the order of arrays",
    Verdict.NOT_DETERMINISTIC: "it is not the same twice, so that nothing is shown",
    Verdict.FAILED_ALONE: "alone it fails, so that nothing is shown",
    Verdict.DIFFERENT: "it is different",
}


class SampleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of the batch that was computed alone as well."""

    partition_key: str
    verdict: Verdict
    content_hash: str | None = None
    remark: str | None = None


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call as the event tells it. `given` is all that its function could read, for each of its partitions."""

    partitions: int
    given: list[Source]
    rows_left_out: int = 0
    left_out_example: str | None = None
    samples: list[SampleRecord] = []


def call_of(fact: TaskFinished, output: int) -> CallRecord | None:
    """The call that computed an output of a task; None where it was for this partition alone, and left nothing out."""
    calls = fact.calls
    number = None if calls is None else calls.of_output(output)
    if calls is None or number is None:
        return None
    inputs = {one.asset_key: one for one in fact.inputs}
    given = [
        Source(source.asset_id, source.asset_key, source.keys[index], source.materialization_ids[index])
        for one in calls.given
        for source in [inputs[one.asset_key]]
        for index in one.to_call(number)
    ]
    return CallRecord(
        partitions=calls.partition_counts(len(fact.partitions))[output] or 1,
        given=sorted(given, key=lambda source: source[1:]),
        rows_left_out=calls.rows_left_out_by(number),
        left_out_example=calls.example_of(number),
        samples=_samples(fact, number),
    )


def _samples(fact: TaskFinished, number: int) -> list[SampleRecord]:
    if fact.samples is None or fact.calls is None:
        return []
    places = {key: place for place, key in enumerate(fact.partitions.keys)}
    count = len(fact.samples.keys)
    rows = zip(
        fact.samples.keys,
        spread(fact.samples.verdict, count),
        spread(fact.samples.content_hash, count),
        spread(fact.samples.remark, count),
        strict=True,
    )
    return [
        SampleRecord(partition_key=key, verdict=verdict, content_hash=content_hash, remark=remark)
        for key, verdict, content_hash, remark in rows
        if key in places and fact.calls.of_output(places[key]) == number
    ]


def call_sentences(call: CallRecord, own: Collection[str], partition_key: str, rows: int | None) -> list[str]:
    """What is to be known of a call, for people. `own`: the materializations that the mapping names."""
    said = []
    if call.partitions > 1:
        others = Counter(source.asset_key for source in call.given if source.materialization_id not in own)
        given = " and ".join(f"{_counted(number, 'partition')} of {asset}" for asset, number in sorted(others.items()))
        more = f", which was also given {given} that its mapping does not name" if given else ""
        said.append(f"computed in one call with {_counted(call.partitions - 1, 'other partition')}{more}")
        said.append(_compared(call.samples, partition_key))
    if call.rows_left_out:
        empty = "it is empty, and " if rows == 0 else ""
        example = f", such as {call.left_out_example}," if call.left_out_example else ""
        what, were = _counted(call.rows_left_out, "row"), "was" if call.rows_left_out == 1 else "were"
        said.append(f"{empty}{what} of other partitions{example} {were} left out")
    return said


def _compared(samples: Sequence[SampleRecord], partition_key: str) -> str:
    if not samples:
        return "none of them was computed alone to compare"
    told = [
        f"{'this partition' if one.partition_key == partition_key else key_text(one.partition_key)} was computed"
        f" alone to compare: {_VERDICTS[one.verdict]}"
        for one in samples
    ]
    return "; ".join(told)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
