"""Derives the statements of a report from events, and verifies a report: its own events must give the same statements.

`derive` both makes and checks a report, so that there is one meaning. What a changed field should have been is then
known, with the event that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from servo.errors import InvalidInput
from servo.events import GENESIS, RecordedEvent
from servo.events.columns import spread
from servo.events.fact import timestamp_text
from servo.events.model import MaterializationPublished, PartitionsMarked, TaskFinished
from servo.lineage.records import (
    CallRecord,
    Mention,
    Source,
    Story,
    approvals_of,
    call_of,
    checks_of,
    execution_of,
    when,
)
from servo.lineage.report import (
    FORMAT,
    Fault,
    Head,
    Proof,
    Report,
    broken_links,
    cite,
    hash_of,
    plain,
    recorded,
    values_of,
)
from servo.lineage.statements import Call, Current, Execution, Input, Node, Output, Statements, WorkspaceName

_HEAD = ("position", "event_id", "occurred_at", "chain_hash")
_UNSTATED = ("generated_at", "as_of", *(f"proof.head.{field}" for field in _HEAD), "report_hash")


def derive(events: Iterable[RecordedEvent], materialization_id: str) -> Statements:
    """The statements of these events about a materialization. InvalidInput if none of them made it."""
    story = Story(events)
    made = story.made(materialization_id)
    if made is None:
        raise InvalidInput(f"no cited event made materialization {materialization_id}", hint="cite the event that did")
    fact, key = made.fact, made.fact.partitions.keys[made.place]
    execution = execution_of(story, fact, key)
    nodes = list(_lineage(story, materialization_id))
    return Statements(
        workspace=WorkspaceName(tenant=made.event.tenant_id, name=made.event.workspace_id),
        asset=fact.asset_key,
        asset_id=fact.asset_id,
        partition=key,
        partition_values=values_of(key),
        materialization=materialization_id,
        code_version=_code_version(made),
        actor=_actor(execution, made),
        published=_published(story, materialization_id),
        current=_current(story, materialization_id),
        execution=execution,
        output=Output(
            content_hash=_column(made, "content_hash"),
            rows=_column(made, "rows"),
            bytes=_column(made, "bytes"),
            files=_column(made, "files"),
            made_at=timestamp_text(made.event.occurred_at),
            made_by=made.event.actor,
            event=made.event.position,
        ),
        inputs=[
            *(
                Input(
                    asset=node.asset,
                    partition=node.partition,
                    materialization=node.materialization,
                    content_hash=node.content_hash,
                    event=node.event,
                )
                for node in nodes
                if node.depth == 1
            ),
            *_also_given(story, made, {node.materialization for node in nodes if node.depth == 1}),
        ],
        lineage=nodes,
        checks=checks_of(story, fact, key),
        approvals=approvals_of(story, fact, key),
        call=_call(made),
    )


def assemble(
    cited: Sequence[tuple[RecordedEvent, str]],
    materialization_id: str,
    *,
    head: Head,
    generated_at: datetime,
    as_of: datetime | str | None = None,
) -> Report:
    """The report that these events, each with the chain hash before it, give."""
    statements = derive([event for event, _ in cited], materialization_id)
    draft = Report(
        **{name: getattr(statements, name) for name in statements.__struct_fields__},
        format=FORMAT,
        report_hash=GENESIS,
        generated_at=timestamp_text(generated_at),
        as_of=timestamp_text(as_of) if isinstance(as_of, datetime) else as_of,
        proof=Proof(head=head, events=[cite(event, previous) for event, previous in cited]),
    )
    return msgspec.structs.replace(draft, report_hash=hash_of(draft))


def verify(report: Report) -> list[Fault]:
    """The places where a report contradicts its own proof; none if it is as it was made."""
    faults = broken_links(report.proof)
    if faults:
        return faults
    events = [recorded(cited) for cited in report.proof.events]
    scope = (report.workspace.tenant, report.workspace.name)
    for event in events:
        if (event.tenant_id, event.workspace_id) != scope:
            reason = f"is {'/'.join(scope)}, and {event.tenant_id}/{event.workspace_id} in event {event.position}"
            faults.append(Fault(path=_workspace_path(event, scope), reason=reason))
            return faults
    try:
        true = derive(events, report.materialization)
    except InvalidInput:
        reason = f"is {report.materialization}, and no cited event made it"
        return [Fault(path="materialization", reason=reason)]
    faults = list(differences(report, true))
    if not faults and (actual := hash_of(report)) != report.report_hash:
        reason = (
            f"is {report.report_hash}, and the content has {actual}: of what no event states"
            f" ({', '.join(_UNSTATED)}) something was changed"
        )
        faults.append(Fault(path="report_hash", reason=reason))
    return faults


def differences(report: Statements, true: Statements, *, by: str = "the cited events") -> Iterator[Fault]:
    """The places where a report differs from the true statements."""
    names = Statements.__struct_fields__
    ours, theirs = ({name: one[name] for name in names if name in one} for one in (plain(report), plain(true)))
    yield from _differences("", ours, theirs, by)


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _actor(execution: Execution | None, made: Mention) -> str:
    """Who requested the run, or stated or published the materialization by hand."""
    return execution.requested.by if execution is not None and execution.requested is not None else made.event.actor


def _code_version(made: Mention) -> str | None:
    return None if isinstance(made.fact, PartitionsMarked) else made.fact.code_version


def _column(mention: Mention | None, name: str) -> Any:
    """The value of a column of an event for a materialization; None without an event."""
    if mention is None:
        return None
    partitions = mention.fact.partitions
    return spread(getattr(partitions, name), len(partitions))[mention.place]


def _record(made: Mention) -> CallRecord | None:
    return call_of(made.fact, made.place) if isinstance(made.fact, TaskFinished) else None


def _call(made: Mention) -> Call | None:
    call = _record(made)
    if call is None:
        return None
    return Call(
        partitions=call.partitions,
        rows_left_out=call.rows_left_out,
        left_out_example=call.left_out_example,
        samples=call.samples,
        event=made.event.position,
    )


def _also_given(story: Story, made: Mention, mapped: set[str]) -> Iterator[Input]:
    """The inputs that the call was given for its other partitions."""
    call = _record(made)
    for source in [] if call is None else call.given:
        if source.materialization_id not in mapped:
            maker = story.made(source.materialization_id)
            yield Input(
                asset=source.asset_key,
                partition=source.partition_key,
                materialization=source.materialization_id,
                content_hash=_column(maker, "content_hash"),
                event=None if maker is None else maker.event.position,
                mapped=False,
            )


def _published(story: Story, materialization_id: str) -> Current | None:
    published = story.published(materialization_id)
    if published is None:
        return None
    by: Literal["run", "hand", "approval", "mark"]
    reason: str | None = None
    match published.fact:
        case TaskFinished():
            by = "run"
        case MaterializationPublished(checkpoint_id=checkpoint_id):
            by = "hand" if checkpoint_id is None else "approval"
        case PartitionsMarked(reason=reason):
            by = "mark"
    return Current(by=by, actor=published.event.actor, reason=reason, **when(published.event))


def _current(story: Story, materialization_id: str) -> Current | None:
    """How it became current last: by its publication, or a rollback to it."""
    published, back = _published(story, materialization_id), story.rolled_back_to(materialization_id)
    if back is not None and (published is None or back[0].position > published.event):
        event, rollback = back
        return Current(by="rollback", actor=event.actor, reason=rollback.reason, **when(event))
    return published


def _lineage(story: Story, materialization_id: str) -> Iterator[Node]:
    """Everything upstream, each once at its smallest depth, nearest first."""
    seen = {materialization_id}
    level, depth = story.sources(materialization_id), 0
    while level:
        depth += 1
        level = sorted({source.materialization_id: source for source in level}.values(), key=lambda one: one[1:])
        level = [source for source in level if source.materialization_id not in seen]
        seen.update(source.materialization_id for source in level)
        further: list[Source] = []
        for source in level:
            sources = story.sources(source.materialization_id)
            further += sources
            yield _node(story, source, depth, [one.materialization_id for one in sources])
        level = further


def _node(story: Story, source: Source, depth: int, inputs: list[str]) -> Node:
    made, published = story.made(source.materialization_id), story.published(source.materialization_id)
    call = None if made is None else _record(made)
    shared = call if call is not None and call.partitions > 1 else None
    return Node(
        asset=source.asset_key,
        asset_id=source.asset_id,
        partition=source.partition_key,
        materialization=source.materialization_id,
        depth=depth,
        inputs=inputs,
        published_at=None if published is None else timestamp_text(published.event.occurred_at),
        content_hash=_column(made, "content_hash"),
        rows=_column(made, "rows"),
        bytes=_column(made, "bytes"),
        code_version=None if made is None else _code_version(made),
        run=None if made is None or isinstance(made.fact, PartitionsMarked) else made.fact.run_id,
        made_at=None if made is None else timestamp_text(made.event.occurred_at),
        made_by=None if made is None else made.event.actor,
        event=None if made is None else made.event.position,
        call_partitions=None if shared is None else shared.partitions,
        call_inputs=None if shared is None else len(shared.given),
    )


# ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────────


def _differences(path: str, said: Any, true: Any, by: str) -> Iterator[Fault]:
    if isinstance(said, Mapping) and isinstance(true, Mapping):
        by = by if true.get("event") is None else f"event {true['event']}"
        for name in [*true, *(name for name in said if name not in true)]:
            where = f"{path}.{name}" if path else name
            if name not in said or name not in true:
                missing = "is missing in the report, and there" if name not in said else "is not"
                yield Fault(path=where, reason=f"{missing} in {by}")
            else:
                yield from _differences(where, said[name], true[name], by)
    elif isinstance(said, Sequence) and isinstance(true, Sequence) and not isinstance(said, str):
        for number, (one, other) in enumerate(zip(said, true, strict=False)):
            yield from _differences(f"{path}[{number}]", one, other, by)
        if len(said) != len(true):
            yield Fault(path=path, reason=f"has {len(said)} entries in the report, and {len(true)} in {by}")
    elif type(said) is not type(true) or said != true:
        yield Fault(path=path, reason=f"is {_shown(said)} in the report, and {_shown(true)} in {by}")


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:119]}…"


def _workspace_path(event: RecordedEvent, scope: tuple[str, str]) -> str:
    return "workspace.tenant" if event.tenant_id != scope[0] else "workspace.name"
