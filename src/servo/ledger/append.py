"""From proposals to recorded events: the part of `append` that every backend shares.

Appends of many threads go into one transaction: the first records what all that wait want recorded. A commit
costs the same for one event as for a hundred, and so does waiting for the interpreter at each step towards it. So
nobody queues for a transaction of its own. Each append is decided by itself, on what those before it in the group did:
one that is refused changes nothing for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from threading import Event, Lock

import msgspec

from servo.errors import AppendConflict, AppendOutcomeUnknown, IdempotencyMismatch, InvalidInput
from servo.events import Proposal, RecordedEvent, encode_as_before, encode_checked
from servo.events.fact import chained
from servo.ids import ulid_range
from servo.ledger.protocol import Condition, Head, Receipt, Workspace

# Longer texts do not fit into PostgreSQL's indexes; one rule for all keeps a ledger movable between backends.
_MAX_INDEXED_BYTES = 2000
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)

Mint = Callable[[str | None], str]  # the next event id after a given one
_MOST_TOGETHER = 64  # appends
_MOST_DRAFTS = 2_000


class Known(msgspec.Struct, frozen=True, gc=False):
    """An event that already holds an idempotency key. Of its payload only the hash: it may have been archived."""

    event_id: str
    position: int
    event_type: str
    payload_hash: bytes

    @classmethod
    def of(cls, event: RecordedEvent) -> Known:
        return cls(event.event_id, event.position, event.event_type, hash_of(event.payload))


def hash_of(payload: bytes) -> bytes:
    return sha256(payload).digest()


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A proposal with its payload encoded, before the ledger is locked."""

    proposal: Proposal
    idempotency_key: str
    correlation_id: str
    payload: bytes


def draft(proposals: Sequence[Proposal]) -> list[Draft]:
    """Encode outside the transaction: other appenders wait for nothing that can be done before."""
    return [_draft(proposal) for proposal in proposals]


def _draft(proposal: Proposal) -> Draft:
    fact = proposal.fact
    if proposal.occurred_at.tzinfo is None:
        raise InvalidInput(
            f"{fact.event_type} has a time without a timezone: {proposal.occurred_at.isoformat()}",
            hint="give an aware datetime, such as datetime.now(UTC)",
        )
    if proposal.occurred_at < _FIRST_MOMENT:
        raise InvalidInput(
            f"{fact.event_type} happened before 1970: {proposal.occurred_at.isoformat()}", hint="check the clock"
        )
    key, correlation_id = fact.idempotency_key, proposal.correlation_id or fact.correlation
    if not _is_plain(key, correlation_id, proposal.actor, proposal.causation_id or ""):
        _require_text(key, f"the idempotency key of {fact.event_type}", indexed=True)
        _require_text(correlation_id, f"the correlation id of {fact.event_type}", indexed=True)
        _require_text(proposal.actor, f"the actor of {fact.event_type}")
        _require_text(proposal.causation_id or "", f"the causation id of {fact.event_type}")
    return Draft(proposal, key, correlation_id, encode_checked(fact))


def _is_plain(*texts: str) -> bool:
    """Whether the texts are so short and harmless, as nearly all are, that they need no closer look."""
    joined = "".join(texts)
    return len(joined) <= _MAX_INDEXED_BYTES // 4 and joined.isprintable()


def _require_text(text: str, what: str, *, indexed: bool = False) -> None:
    """Refuse, before anything is written, what some backend could not hold."""
    if "\0" in text:
        raise InvalidInput(f"{what} holds a NUL character: {text!r:.200}", hint="leave it out")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} holds a lone surrogate: {text!r:.200}", hint="decode it as UTF-8") from None
    if indexed and size > _MAX_INDEXED_BYTES:
        raise InvalidInput(
            f"{what} has {size} bytes: {text!r:.60}…",
            hint=f"use at most {_MAX_INDEXED_BYTES}, or a hash of it",
        )


class Recording(msgspec.Struct, frozen=True):
    """The result of an append: events to insert, and receipts to answer."""

    events: list[RecordedEvent]
    receipts: list[Receipt]


def record(
    drafts: Sequence[Draft], head: Head, known: Mapping[str, Known], workspace: Workspace, mint: Mint
) -> Recording:
    """Number, chain and answer the drafts, given the head and the events that hold some of their keys."""
    events: list[RecordedEvent] = []
    receipts: list[Receipt] = []
    by_key: dict[str, RecordedEvent] = {}
    position, chain_hash = head.position, head.chain_hash
    # Consecutive ids, minted while the ledger is locked: greater than all before, and only one look at the clock.
    ids = iter(ulid_range(mint(head.event_id), len(drafts)))
    for item in drafts:
        key = item.idempotency_key
        holder = known.get(key) or (Known.of(by_key[key]) if key in by_key else None)
        if holder is not None:
            _require_same(item, holder)
            receipts.append(Receipt(event_id=holder.event_id, position=holder.position, duplicate=True))
            continue
        proposal = item.proposal
        event_id = next(ids)
        position += 1
        event = chained(
            chain_hash,
            RecordedEvent(
                event_id=event_id,
                position=position,
                event_type=proposal.fact.event_type,
                event_version=proposal.fact.event_version,
                occurred_at=proposal.occurred_at.astimezone(UTC),
                tenant_id=workspace.tenant,
                workspace_id=workspace.name,
                actor=proposal.actor,
                idempotency_key=key,
                correlation_id=item.correlation_id,
                causation_id=proposal.causation_id,
                payload=item.payload,
                chain_hash="",
            ),
        )
        chain_hash = event.chain_hash
        by_key[key] = event
        events.append(event)
        receipts.append(Receipt(event_id=event_id, position=position))
    return Recording(events, receipts)


def _require_same(item: Draft, holder: Known) -> None:
    fact = item.proposal.fact
    payloads = chain([item.payload], encode_as_before(fact))  # an earlier version may have recorded it
    if fact.event_type != holder.event_type or holder.payload_hash not in map(hash_of, payloads):
        raise IdempotencyMismatch(
            f"idempotency key {item.idempotency_key!r} already belongs to {holder.event_type} {holder.event_id}"
            " with another payload",
            hint="use a new key for a new fact; repeat the same payload to repeat the old one",
            idempotency_key=item.idempotency_key,
            event_id=holder.event_id,
        )


def advanced(head: Head, events: Sequence[RecordedEvent]) -> Head:
    """The head after these events."""
    last = events[-1]
    return msgspec.structs.replace(
        head,
        position=last.position,
        event_id=last.event_id,
        chain_hash=last.chain_hash,
        occurred_at=last.occurred_at,
    )


def conflict(condition: Condition, newest: int) -> AppendConflict:
    """The error for a condition that an event at position `newest` breaks."""
    what = "the ledger" if condition.subjects is None else ", ".join(sorted(condition.subjects))
    return AppendConflict(
        f"{what} changed: decided at position {condition.position}, but there is an event at {newest}",
        hint="look again and decide again",
        expected=condition.position,
        actual=newest,
    )


def require_live(condition: Condition, head: Head) -> None:
    """Refuse a condition on subjects that reaches into the archived part: what happened there is not known here."""
    if condition.subjects and condition.position < head.trimmed_position:
        raise AppendConflict(
            f"whether {', '.join(sorted(condition.subjects))} changed cannot be told: decided at position"
            f" {condition.position}, but events up to {head.trimmed_position} are archived",
            hint="look again and decide again",
            expected=condition.position,
            actual=head.trimmed_position,
        )


class PendingAppend:
    """One append: what it wants recorded, and what came of it."""

    def __init__(self, drafts: Sequence[Draft], condition: Condition | None) -> None:
        self.drafts = drafts
        self.condition = condition
        self.receipts: list[Receipt] = []
        self.problem: BaseException | None = None
        self.leads = False
        self.called = Event()  # it is done, or it is up to it to lead


class GroupCommit:
    """The appends that wait. `together` records some of them: all in one transaction, or none.

    It says in each what came of it. What it raises came of all that it has said nothing else of.
    """

    def __init__(self, together: Callable[[Sequence[PendingAppend]], None]) -> None:
        self._together = together
        self._waiting: deque[PendingAppend] = deque()
        self._lock = Lock()
        self._led = False

    def append(self, entry: PendingAppend) -> list[Receipt]:
        with self._lock:
            self._waiting.append(entry)
            entry.leads, self._led = not self._led, True
        if not entry.leads:
            entry.called.wait()
        if entry.leads:
            self._lead()
        if entry.problem is not None:
            raise entry.problem
        return entry.receipts

    def _lead(self) -> None:
        pending = self._next()
        try:
            self._together(pending)
        except Exception as problem:  # noqa: BLE001 (each is told)
            _blame(pending, problem)
        except BaseException:
            # The leading thread is being stopped, and the others are not.
            _blame(pending, AppendOutcomeUnknown("the append was interrupted", hint="repeat it"))
            raise
        finally:
            with self._lock:
                self._led = bool(self._waiting)
                if self._led:
                    self._waiting[0].leads = True
                    self._waiting[0].called.set()
            for entry in pending:
                entry.called.set()

    def _next(self) -> list[PendingAppend]:
        """The first appends, the leader among them: as many as go together well."""
        pending: list[PendingAppend] = []
        drafts = 0
        with self._lock:
            while self._waiting and len(pending) < _MOST_TOGETHER:
                drafts += len(self._waiting[0].drafts)
                if pending and drafts > _MOST_DRAFTS:
                    break
                pending.append(self._waiting.popleft())
        return pending


def _blame(pending: Sequence[PendingAppend], problem: BaseException) -> None:
    for entry in pending:
        if entry.problem is None:
            entry.problem = problem
