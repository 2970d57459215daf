"""Performs operations: the one place where what people ask for is looked up, decided and recorded.

A change is decided on a state and recorded on the condition that the state still holds, together with the request
itself where it has an idempotency key. So it is done once however often it is asked, and of those who ask at the same
time the ledger takes one. Whoever comes later under the key is given the recorded answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from servo import canonical, decoders
from servo.errors import AppendConflict, Conflict, IdempotencyMismatch, InvalidInput, LedgerNotFound, NotFound
from servo.events import Proposal, RecordedEvent
from servo.events.requests import RequestAccepted
from servo.ledger.protocol import Condition, Receipt
from servo.operations.decision import Decision, Seen, other_request, require_version
from servo.operations.handling import Found, Handler, Lister, handler_of
from servo.operations.operation import Change, ListQuestion, Operation, Question, answer_type
from servo.operations.state import Sources, State
from servo.operations.validation import validated
from servo.planning.deployed_state import Definitions, DeployedState
from servo.runtime.appending import Patience
from servo.runtime.cataloguing import deployed_catalog
from servo.runtime.definitions_in_force import as_deployed, as_in_folder, for_reading
from servo.runtime.deployed_state import state_of
from servo.runtime.requesting import AskedBefore, Asking, Request, event_of, event_under, plain, said_in
from servo.runtime.serving import Call, Service, service_of
from servo.runtime.states import statuses_in
from servo.runtime.user_code import UserCode
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["PREFIX", "Performed", "Performer", "Recorded", "action_of", "fingerprint_of"]

A = TypeVar("A")
T = TypeVar("T")

PREFIX = "/api/v1/orchestration"
_PATIENCE = 60.0  # seconds for the tail to be folded
_STEP = 1_000
# Optional fields that earlier versions did not have: left out, a request is the one that it was then.
_ADDED_LATER = ("unfreeze",)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The event by which a change is in the ledger."""

    event_id: str
    accepted_at: datetime
    correlation_id: str | None


class Performed(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """What a change is answered with, the event by which it was done, and whether that was so before.

    Without an event there was nothing to do. `asked_before`: this very request was answered before, under its key.
    """

    answer: A
    event: Recorded | None
    done_before: bool = False
    asked_before: bool = False

    @property
    def told(self) -> A:
        """The answer with its event, for who is not told of that beside it."""
        answer: Any = self.answer
        known = {
            "event_id": None if self.event is None else self.event.event_id,
            "duplicate": self.done_before,
            "accepted_at": None if self.event is None else self.event.accepted_at,
        }
        fields = getattr(answer, "__struct_fields__", ())
        said = {
            name: value for name, value in known.items() if name in fields and (value is not None or name == "event_id")
        }
        told: A = msgspec.structs.replace(answer, **said) if said else answer
        return told


class Performer:
    """Performs operations on one project.

    `in_folder`: for a command in the project's folder. There, what its files declare counts as it is written, deployed
    or not, and is deployed first where an operation needs that.
    """

    def __init__(self, project: Project, user_code: UserCode, *, in_folder: bool = False) -> None:
        self._project = project
        self._user_code = user_code
        self._in_folder = in_folder

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, request: Question[A], *, as_of: datetime | str | None = None) -> A:
        """Answer a question, from the newest state or as of then."""
        validated(request)
        handler = handler_of(type(request))
        if isinstance(handler, Handler):
            answer: A = handler(self._user_code, self._state(as_of=as_of), request)
            return answer
        serve = service_of(type(request)).reading(in_folder=self._in_folder)
        served: A = serve(self._project, request, as_of)
        return served

    def find(self, request: ListQuestion[A], after: Any = None, *, as_of: datetime | str | None = None) -> Found[A]:
        """Find the items of a list after a place, one more than its limit where there are more."""
        validated(request)
        lister = handler_of(type(request))
        if isinstance(lister, Lister):
            return lister.function(self._state(as_of=as_of), request, after)
        serve = service_of(type(request)).reading(in_folder=self._in_folder)
        found: Found[A] = serve(self._project, request, after, as_of)
        return found

    def listed(
        self, request: ListQuestion[A], *, limit: int, after: Any = None, as_of: datetime | str | None = None
    ) -> Found[A]:
        """The first items of a list, or the first after a place, as they are shown."""
        whole = msgspec.structs.replace(request, limit=limit)
        found, kind = self.find(whole, after, as_of=as_of), type(request)
        lister = handler_of(kind)
        show = lister.show if isinstance(lister, Lister) else service_of(kind).show
        return msgspec.structs.replace(found, items=[show(item) for item in found.items[:limit]])

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def change(
        self,
        request: Change[A],
        *,
        actor: str,
        key: str | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> Performed[A]:
        """Do what is asked for, once for each key. `before`: see `servo.runtime.serving.Call`."""
        validated(request)
        kind = type(request)
        if self._in_folder and kind.contract.deploys == "always":
            self._deploy_for(request, actor)
        handler = handler_of(kind)
        if isinstance(handler, Handler):
            try:
                return _Attempt(self, request, handler, key=key, actor=actor).performed()
            except NotFound:
                if not self._in_folder or kind.contract.deploys != "unknown":
                    raise
            self._deploy_for(request, actor)
            return _Attempt(self, request, handler, key=key, actor=actor).performed()
        call = Call(project=self._project, user_code=self._user_code, actor=actor, key=key, before=before)
        return _serve(call, request, service_of(kind))

    def _deploy_for(self, request: Change[Any], actor: str) -> None:
        """Deploy the folder's definitions; what they do not have either is refused first, and nothing is written."""
        contract = type(request).contract
        if "schedule" in contract.route.parameters:
            with self._project.looking() as looking:
                before = _deployed_of(_snapshot_of(looking))
                as_in_folder(looking, before).state.schedule(request.schedule)  # type: ignore[attr-defined]  # as the route says
        if "sensor" in contract.route.parameters:
            with self._project.looking() as looking:
                before = _deployed_of(_snapshot_of(looking))
                as_in_folder(looking, before).state.sensor(request.sensor)  # type: ignore[attr-defined]  # as the route says
        deployed_catalog(self._project, actor=actor)

    # ── the state ────────────────────────────────────────────────────────────────────────────────────────────────

    def _state(self, *, key: str | None = None, as_of: datetime | str | None = None) -> State:
        project = self._project
        definitions: Callable[[DeployedState], Definitions]
        if self._in_folder and as_of is None:
            definitions = lambda state: for_reading(project, state)  # noqa: E731 (it is one of two)
        else:
            definitions = lambda state: as_deployed(project, state)  # noqa: E731
        sources = Sources(
            snapshot=lambda: _snapshot_of(project, as_of),
            deployed=_deployed_of,
            definitions=definitions,
            folder=lambda state: as_in_folder(project, state),
            statuses=lambda catalog: statuses_in(project, catalog),
            polls=lambda: project.polls.all(),  # noqa: PLW0108 (which opens it when it is asked)
            event=lambda event_id: event_of(project, event_id),
            new_id=project.mint,
        )
        return State(sources, now=project.clock(), as_of=as_of, key=key)


def _snapshot_of(project: Project, as_of: datetime | str | None = None) -> Answers | None:
    """The projections up to the ledger's head; None where nothing was ever recorded."""
    try:
        if as_of is None and (project.unbegun or project.ledger.head().position == 0):
            return None
    except LedgerNotFound:
        return None
    return project.reader.snapshot(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)


def _deployed_of(snapshot: Answers | None) -> DeployedState:
    return DeployedState(position=0) if snapshot is None else state_of(snapshot)


class _Attempt(Generic[A]):
    """One change on its way into the ledger: decided, and decided again while others are first."""

    def __init__(
        self, performer: Performer, request: Change[A], handler: Handler, *, key: str | None, actor: str
    ) -> None:
        self._performer = performer
        self._project = performer._project
        self._request = request
        self._handler = handler
        self._key = key
        self._actor = actor
        self._accepting = None if key is None else Asking(self._project, _identity(request, key, actor))

    def performed(self) -> Performed[A]:
        patience: Patience | None = None
        first_seen: Seen | None = None
        if (known := self._known()) is not None:
            return known
        while True:
            try:
                state = self._performer._state(key=self._key)
                decision: Decision[A] = self._handler(self._performer._user_code, state, self._request)
                if decision.seen is not None:
                    if first_seen is not None:
                        require_version(decision.seen, first_seen.version)
                    first_seen = first_seen or decision.seen
            except (Conflict, InvalidInput, NotFound):
                # Perhaps because this very request was done before, or at the same time.
                if (known := self._known()) is not None:
                    return known
                raise
            try:
                performed = self._record(state, decision)
            except AskedBefore:
                known = self._known()
                assert known is not None
                return known
            if performed is not None:
                return performed
            patience = patience or Patience(_named(self._request))
            patience.pause()

    def _record(self, state: State, decision: Decision[A]) -> Performed[A] | None:
        """Record the facts; None where something that matters has happened, and it must be decided again."""
        if decision.recorded is not None:
            before = _recorded(event_of(self._project, decision.recorded))
            return Performed(answer=decision.answer, event=before, done_before=True, asked_before=True)
        if not decision.facts:
            if self._accepting is not None:
                self._accepting.note(_plain(decision.answer))
            return Performed(answer=decision.answer, event=None, done_before=True)
        proposals = [Proposal(fact=fact, occurred_at=state.now, actor=self._actor) for fact in decision.facts]
        condition: Condition | None = None
        if decision.conflicts is not None:
            condition = Condition(position=state.position)
        elif decision.subjects is not None:
            condition = Condition(position=state.position, subjects=decision.subjects)
        while True:
            try:
                receipt = self._append(proposals, condition, decision)
            except IdempotencyMismatch:
                return None
            except AppendConflict:
                if decision.conflicts is None or condition is None:
                    return None
                position = self._passed_over(condition.position, decision.conflicts)
                if position is None or position == condition.position:
                    return None
                condition = Condition(position=position)
                continue
            event = Recorded(
                event_id=receipt.event_id,
                accepted_at=state.now,
                correlation_id=proposals[decision.main].correlation_id or decision.facts[decision.main].correlation,
            )
            if receipt.duplicate:
                event = _recorded(event_of(self._project, receipt.event_id))
            return Performed(answer=decision.answer, event=event, done_before=receipt.duplicate)

    def _append(self, proposals: list[Proposal], condition: Condition | None, decision: Decision[A]) -> Receipt:
        if self._accepting is None:
            return self._project.ledger.append(proposals, condition)[decision.main]
        answer = _plain(decision.answer)
        return self._accepting.append(proposals, condition, answer, decision.main)[decision.main]

    def _passed_over(self, position: int, conflicts: Callable[[RecordedEvent], bool]) -> int | None:
        """The newest position, if nothing up to it matters; else None."""
        for event in self._project.history.events(position):
            position = event.position
            if conflicts(event):
                return None
        return position

    def _known(self) -> Performed[A] | None:
        """The answer that was recorded under this key."""
        if self._accepting is None or (fact := self._accepting.first()) is None:
            return None
        if fact.fingerprint != self._accepting.request.fingerprint:
            raise other_request(self._accepting.request.key, fact.action)
        event = event_under(self._project, fact)
        answer: A = _decoded(fact, answer_type(type(self._request)))
        return Performed(
            answer=answer,
            event=None if event is None else _recorded(event),
            done_before=True,
            asked_before=True,
        )


def _recorded(event: RecordedEvent) -> Recorded:
    return Recorded(event_id=event.event_id, accepted_at=event.occurred_at, correlation_id=event.correlation_id)


def _plain(answer: Any) -> Any:
    return plain(answer)


def _decoded(fact: RequestAccepted, kind: Any) -> Any:
    return decoders.decode(fact.answer.encode(), kind)


def _named(request: Operation[Any]) -> str:
    """What a request is about, for who is told that others were always first."""
    parameters = type(request).contract.route.parameters
    name = getattr(request, parameters[0]) if parameters else getattr(request, "name", type(request).__name__)
    return f"{name!r:.80}"


# ── identity ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _identity(request: Change[Any], key: str, actor: str) -> Request:
    action = action_of(request)
    return Request(key=key, action=action, fingerprint=fingerprint_of(action, request), actor=actor)


def action_of(request: Operation[Any]) -> str:
    """The method and full path of a request."""
    route = type(request).contract.route
    return f"{route.method} {PREFIX}{route.filled(request)}"


def fingerprint_of(what: str, request: Operation[Any]) -> str:
    """The hash of what is asked for: the same fields with the same values, however they are written."""
    parameters = type(request).contract.route.parameters
    said = {name: value for name, value in msgspec.to_builtins(request).items() if name not in parameters}
    for name in _ADDED_LATER:
        if said.get(name) is None:
            said.pop(name, None)
    return canonical.sha256_hex({"what": what, "body": _canonical(said)})


def _canonical(value: Any) -> Any:
    """The value in canonical JSON, which has no floats and no texts that are not Unicode."""
    match value:
        case float():
            return repr(value)
        case str() if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return {"bytes": value.encode(errors="surrogatepass").hex()}
        case dict():
            return {name: _canonical(one) for name, one in value.items()}
        case list() | tuple():
            return [_canonical(one) for one in value]
    return value


# ── services ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _serve(call: Call, request: Change[A], service: Service) -> Performed[A]:
    """Have a service do a change, and record the request with what it appends."""
    project, key, kind = call.project, call.key, answer_type(type(request))

    def work() -> dict[str, Any]:
        return plain(service.function(call, request))

    def made(done: dict[str, Any]) -> Performed[A]:
        event_id, before = done.get("event_id"), bool(done.get("duplicate"))
        event = None if event_id is None else _recorded(event_of(project, event_id))
        answer: Any = decoders.convert(done, kind)
        return Performed(
            answer=answer, event=event, done_before=before or event is None, asked_before=before and key is not None
        )

    if key is None or service.keeps_key or request.needs_no_key:
        done = work()
        return made(done if service.afterwards is None else service.afterwards(project, done))
    accepting = Asking(project, _identity(request, key, call.actor))

    def again(fact: RequestAccepted) -> Performed[A]:
        if fact.fingerprint != accepting.request.fingerprint:
            raise other_request(key, fact.action)
        event = event_under(project, fact)
        if service.known and event is not None:
            return made({**work(), "duplicate": True})
        return told(fact, event, before=True, asked_before=True)

    def told(
        fact: RequestAccepted, event: RecordedEvent | None, *, before: bool, asked_before: bool = False
    ) -> Performed[A]:
        said = said_in(fact)
        if event is not None and service.finish is not None:
            said = service.finish(project, said, event)
        if event is not None and service.afterwards is not None:
            said = accepting.said_afterwards() or accepting.afterwards(service.afterwards(project, said))
        answer: Any = decoders.convert(said, kind)
        return Performed(
            answer=answer,
            event=None if event is None else _recorded(event),
            done_before=before,
            asked_before=asked_before,
        )

    if (first := accepting.first()) is not None:
        return again(first)
    try:
        with accepting:
            done = work()
        if service.known and done.get("event_id") is not None:
            return made(done)
        if accepting.accepted is None:
            if done.get("event_id") is not None:
                # Done long ago, under a key that the ledger has forgotten or from before requests were kept.
                return made({**done, "duplicate": True})
            accepting.note(done)
    except (AskedBefore, Conflict, InvalidInput, NotFound):
        # Perhaps because this very request was being done at the same time.
        if (first := accepting.first()) is None:
            raise
        return again(first)
    fact = accepting.accepted
    assert fact is not None
    event_id = fact.event_id if accepting.receipt is None else accepting.receipt.event_id
    event = None if event_id is None else event_of(project, event_id)
    before = event is None or (accepting.receipt is not None and accepting.receipt.duplicate)
    return told(fact, event, before=before)
