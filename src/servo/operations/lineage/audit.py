"""Audit reports: made from the ledger, checked against it, and what they cite kept from vacuum.

Making a report records nothing in the ledger. The projections tell where to look; what the report says is derived from
the events alone, and a report that does not prove itself is not handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from servo.answers.lineage import Verified
from servo.errors import DataNotFound, InvalidInput, LedgerCorrupt, ServoError
from servo.events import GENESIS, RecordedEvent, canonical_bytes, decode
from servo.events.fact import timestamp_text
from servo.lineage import audit
from servo.lineage.records import tells_of_task
from servo.lineage.report import CitedEvent, Fault, Head, Report
from servo.operations.fields import past_moment
from servo.operations.handling import Outside, answers
from servo.operations.lineage.requests import GetReport, KeepReport
from servo.partitions import PartitionKey
from servo.status.partitions import typed_key
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers


_CURRENT = """
    SELECT materialization_id, materialization_version, last_materialization_at FROM partition_status
    WHERE asset_id = $asset_id AND partition_key = $key
"""
_MADE = """
    SELECT materialization_id, made_version, published_version, run_id, task_key FROM materializations
    WHERE materialization_id IN (SELECT unnest($ids))
"""
_UPSTREAM = """
    SELECT DISTINCT upstream_materialization_id FROM lineage WHERE materialization_id IN (SELECT unnest($ids))
"""
_RUN = "SELECT requested_version, finished_version FROM runs WHERE run_id = $run_id"
_CHECKPOINTS = """
    SELECT requested_version, decided_version, escalated_version FROM checkpoints
    WHERE run_id = $run_id AND task_key = $task_key AND list_contains(partition_keys, $key)
"""
_DENSE = 50  # events to read past for one that is wanted


class Audits:
    """Audit reports of one state. `generated_at`: the time it is, be the state of now or of then."""

    def __init__(self, state: State, generated_at: datetime) -> None:
        self._state = state
        self._generated_at = generated_at

    def report(self, asset: str, partition: str = "") -> Report:
        """How the current materialization of a partition came about."""
        known = self._state.catalog
        key = known.graph.resolve(asset)
        one = PartitionKey.parse(typed_key(self._state, key, partition))
        what = f"{key} {known.spec(key).partitions.label(one)}".strip()
        return self._made(self._state, known.asset_id(key), str(one), what)

    def verify(self, report: Report) -> Verified:
        """What the report does not prove itself, and what this workspace's ledger does not confirm."""
        here, there = self._state.policy.workspace, report.workspace
        if (here.tenant, here.name) != (there.tenant, there.name):
            raise InvalidInput(
                f"the report is of workspace {there.tenant}/{there.name},"
                f" and this project's is {here.tenant}/{here.name}",
                hint="verify it in a project of that workspace, or with --offline",
            )
        faults = audit.verify(report) or list(self._contradictions(report)) or list(self._left_out(report))
        return Verified(
            report_hash=report.report_hash, events=len(report.proof.events), with_ledger=True, faults=faults
        )

    # ── making ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _made(self, state: State, asset_id: str, key: str, what: str) -> Report:
        tables, as_of = state.tables, state.as_of
        rows = tables.query(_CURRENT, {"asset_id": asset_id, "key": key}).rows
        materialization_id, version, at = rows[0] if rows else (None, None, None)
        if materialization_id is None:
            when = "" if as_of is None else f" as of {as_of}"
            if at is not None:
                raise DataNotFound(
                    f"{what} was marked by hand{when}, and no materialization is known of it",
                    hint="materialize it, or see `servo partition status`",
                )
            raise DataNotFound(f"{what} has no data{when}", hint="materialize it first")
        cited = self._cited(tables, materialization_id, key, version.rpartition(":")[2])
        mark = tables.watermark
        assert mark.event_id is not None
        assert mark.occurred_at is not None
        head = Head(
            position=mark.position,
            event_id=mark.event_id,
            occurred_at=timestamp_text(mark.occurred_at),
            chain_hash=mark.chain_hash,
        )
        report = audit.assemble(cited, materialization_id, head=head, generated_at=self._generated_at, as_of=as_of)
        for fault in audit.verify(report):
            raise LedgerCorrupt(f"the ledger does not prove {what}: {fault}", hint="run `servo ledger verify`")
        return report

    def _cited(
        self, tables: Answers, materialization_id: str, key: str, current: str
    ) -> list[tuple[RecordedEvent, str]]:
        """The events that the report rests on, in their order, each with the chain hash before it."""
        ids = self._upstream(tables, materialization_id)
        rows = {row[0]: row for row in tables.query(_MADE, {"ids": ids}).rows}
        wanted = {name for row in rows.values() for name in row[1:3] if name is not None} | {current}
        _, _, _, run_id, task_key = rows[materialization_id]
        if run_id is not None:
            about = {"run_id": run_id, "task_key": task_key, "key": key}
            checkpoints = tables.query(_CHECKPOINTS, about).rows
            wanted.update(name for row in checkpoints for name in row if name is not None)
            wanted.update(self._of_run(tables, run_id, task_key or "", key))
        return list(self._read(wanted))

    def _upstream(self, tables: Answers, materialization_id: str) -> list[str]:
        """The materialization, and all that it was made from, at any distance."""
        seen, level = {materialization_id}, [materialization_id]
        while level:
            found = tables.query(_UPSTREAM, {"ids": level}).rows
            level = [name for (name,) in found if name not in seen]
            seen.update(level)
        return sorted(seen)

    def _of_run(self, tables: Answers, run_id: str, task_key: str, key: str) -> Iterator[str]:
        """The events of a run that bear on one partition: they lie between its request and its end."""
        rows = tables.query(_RUN, {"run_id": run_id}).rows
        requested, finished = rows[0] if rows else (None, None)
        history, until = self._state.history, tables.watermark.position
        if finished is not None:
            until = min(until, history.find(finished))
        after = 0 if requested is None else history.find(requested) - 1
        for event in history.events(after, until):
            if event.correlation_id == run_id and tells_of_task(decode(event), run_id, task_key, key):
                yield event.event_id

    def _read(self, event_ids: set[str]) -> Iterator[tuple[RecordedEvent, str]]:
        """These events in their order, each with the chain hash before it."""
        history = self._state.history
        first, last = history.find(min(event_ids)), history.find(max(event_ids))
        if last - first < _DENSE * len(event_ids):
            # Reading past the others is quicker than looking for each.
            previous = GENESIS
            for event in history.events(max(first - 2, 0), last):
                if event.event_id in event_ids:
                    yield event, previous
                previous = event.chain_hash
            return
        for event_id in sorted(event_ids):
            position = history.find(event_id)
            found = history.read(max(position - 2, 0), 2 if position > 1 else 1)
            yield found[-1], found[0].chain_hash if position > 1 else GENESIS

    # ── checking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _contradictions(self, report: Report) -> Iterator[Fault]:
        """Where the ledger has something else than what is cited."""
        head = report.proof.head
        at_head = self._at(head.position)
        if at_head is None or (at_head.event_id, at_head.chain_hash) != (head.event_id, head.chain_hash):
            yield Fault(path="proof.head.chain_hash", reason=_unlike(head.position, head.chain_hash, at_head))
            return
        for number, cited in enumerate(report.proof.events):
            there = self._at(cited.position)
            if there is None or not _same(cited, there):
                reason = _unlike(cited.position, cited.chain_hash, there)
                yield Fault(path=f"proof.events[{number}].chain_hash", reason=reason)

    def _left_out(self, report: Report) -> Iterator[Fault]:
        """What the ledger would have said at the report's head: the same, and neither more nor less."""
        as_of = report.proof.head.event_id
        what = f"{report.asset} {report.partition}".strip()
        try:
            made = self._made(self._state.at(as_of), report.asset_id, report.partition, what)
        except ServoError as problem:
            yield Fault(path="materialization", reason=f"cannot be told from the ledger: {problem}")
            return
        yield from audit.differences(report, made, by="the ledger")
        cited = {event.position for event in report.proof.events}
        for event in made.proof.events:
            if event.position not in cited:
                yield Fault(path="proof.events", reason=f"leave out event {event.position}, {event.event_type}")
        if made.proof.head != report.proof.head:
            yield Fault(path="proof.head", reason=f"is not what the ledger has at {report.proof.head.position}")

    def _at(self, position: int) -> RecordedEvent | None:
        history = self._state.history
        if position > history.head().position:
            return None
        found = history.read(position - 1, 1)
        return found[0] if found else None


def _same(cited: CitedEvent, event: RecordedEvent) -> bool:
    return cited.chain_hash == event.chain_hash and cited.canonical.encode() == canonical_bytes(event)


def _unlike(position: int, chain_hash: str, there: RecordedEvent | None) -> str:
    if there is None:
        return f"is {chain_hash}, and this ledger has no event {position}: it is another, or was cut off"
    if there.chain_hash == chain_hash:
        return f"is that of event {position} of this ledger, whose content is another: the ledger was changed"
    return (
        f"is {chain_hash}, and event {position} of this ledger, {there.event_id}, has {there.chain_hash}:"
        " one of the two was changed, or the report is of another ledger"
    )


def verify_offline(report: Report) -> Verified:
    """What the report does not prove itself, without any ledger."""
    return Verified(
        report_hash=report.report_hash,
        events=len(report.proof.events),
        with_ledger=False,
        faults=audit.verify(report),
    )


@answers(GetReport, evidence=lambda outside, _, __: outside.now())
def get_report(state: State, request: GetReport, now: datetime) -> Report:
    return Audits(state, now).report(request.asset, request.partition)


def _kept_report(outside: Outside, state: State, request: KeepReport) -> Report:
    """The report, of which vacuum spares from here on what it cites, whatever retention says."""
    then = state if request.as_of is None else state.at(past_moment(request.as_of, "as_of"))
    report = Audits(then, outside.now()).report(request.asset, request.partition)
    outside.keep_cited(report)
    return report


@answers(KeepReport, evidence=_kept_report)
def keep_report(_: State, __: KeepReport, report: Report) -> Report:
    return report
