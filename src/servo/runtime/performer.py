"""Performs operations: the one place where what people ask for is looked up, decided and recorded.

A change is decided on a state and recorded on the condition that the state still holds, together with the request
itself where it has an idempotency key. So it is done once however often it is asked, and of those who ask at the same
time the ledger takes one. Whoever comes later under the key is given the recorded answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from servo import decoders
from servo.errors import AppendConflict, Conflict, IdempotencyMismatch, InvalidInput, NotFound
from servo.events import Proposal, RecordedEvent
from servo.ledger.protocol import Condition, Receipt
from servo.operations.fields import parse_moment
from servo.operations.handling import (
    Decision,
    Found,
    Handler,
    Seen,
    UserCode,
    handler_of,
    lister_of,
    other_request,
    require_version,
)
from servo.operations.operation import (
    Change,
    ListQuestion,
    Operation,
    Question,
    action_of,
    answer_type,
    fingerprint_of,
    validated,
)
from servo.runtime.deploying import deploy, deployed_catalog
from servo.runtime.keyed_requests import (
    AskedBefore,
    KeyedRequest,
    Patience,
    Request,
    event_of,
    event_under,
    plain,
    said_in,
)
from servo.runtime.outside import ProjectOutside
from servo.runtime.states import ProjectSources, state_of
from servo.runtime.wiring import Project
from servo.status.state import State

__all__ = ["Performed", "Performer", "Recorded"]

A = TypeVar("A")

_MOST_PASSED_OVER = 1_000  # looks at what others record and does not matter, before it is decided again


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

    def ask(self, request: Question[A], *, as_of: datetime | str | None = None, state: State | None = None) -> A:
        """Answer a question, from a state, or from the newest or as of then."""
        validated(request)
        answer: A = handler_of(type(request))(self._outside(), state or self._state(as_of=as_of), request)
        return answer

    def find(
        self,
        request: ListQuestion[A],
        after: Any = None,
        *,
        as_of: datetime | str | None = None,
        state: State | None = None,
    ) -> Found[A]:
        """Find the items of a list after a place, one more than its limit where there are more."""
        validated(request)
        return lister_of(type(request))(self._outside(), state or self._state(as_of=as_of), request, after)

    def listed(
        self, request: ListQuestion[A], *, limit: int, after: Any = None, as_of: datetime | str | None = None
    ) -> Found[A]:
        """The first items of a list, or the first after a place, as they are shown."""
        found = self.find(msgspec.structs.replace(request, limit=limit), after, as_of=as_of)
        show = lister_of(type(request)).show
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
        """Do what is asked for, once for each key.

        `before` is called once the request is known to be sound and nothing is written yet; it may refuse.
        """
        validated(request)
        if not self._project.unbegun:
            self._project.require_own_secret()  # also for who asks again: with another secret it would be another run
        kind = type(request)
        if self._in_folder and kind.contract.deploys == "always":
            self._deploy_for(request, actor)
        handler = handler_of(kind)
        try:
            return _Attempt(self, request, handler, key=key, actor=actor, before=before).performed()
        except NotFound:
            if not self._in_folder or kind.contract.deploys != "unknown":
                raise
        self._deploy_for(request, actor)
        return _Attempt(self, request, handler, key=key, actor=actor, before=before).performed()

    def _deploy_for(self, request: Change[Any], actor: str) -> None:
        """Deploy the folder's definitions; what they do not have either is refused first, and nothing is written."""
        contract = type(request).contract
        if "schedule" in contract.route.parameters:
            with self._project.looking() as looking:
                state_of(looking).folder.state.schedule(request.schedule)  # type: ignore[attr-defined]  # as the route says
        if "sensor" in contract.route.parameters:
            with self._project.looking() as looking:
                state_of(looking).folder.state.sensor(request.sensor)  # type: ignore[attr-defined]  # as the route says
        deployed_catalog(self._project, actor=actor)

    def _outside(self) -> ProjectOutside:
        """What one request asks of the world; what it has found there is not good for the next."""
        return ProjectOutside(self._project, self._user_code)

    # ── the state ────────────────────────────────────────────────────────────────────────────────────────────────

    def _state(self, *, as_of: datetime | str | None = None) -> State:
        when = parse_moment(as_of) if isinstance(as_of, str) else as_of
        return state_of(self._project, when, in_folder=self._in_folder)


class _Attempt(Generic[A]):
    """One change on its way into the ledger: decided, and decided again while others are first."""

    def __init__(
        self,
        performer: Performer,
        request: Change[A],
        handler: Handler,
        *,
        key: str | None,
        actor: str,
        before: Callable[[], None],
    ) -> None:
        self._performer = performer
        self._project = performer._project
        self._request = request
        self._handler = handler
        self._key = None if request.needs_no_key else key
        self._actor = actor
        self._before = before
        self._outside = performer._outside()
        self._patience: Patience | None = None
        self._begun = frozenset[str]()
        self._accepting = (
            None if self._key is None else KeyedRequest(self._project, _identity(request, self._key, actor))
        )

    def performed(self) -> Performed[A]:
        first_seen: Seen | None = None
        if (known := self._known()) is not None:
            return known
        while True:
            try:
                state, decision = self._decide()
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
                performed = self._followed_up(state, performed)
                return performed if self._handler.afterwards is None else self._completed(performed)
            self._pause()

    def _pause(self) -> None:
        """Wait a little before the next look at what others have changed; not for ever."""
        self._patience = self._patience or Patience(_named(self._request))
        try:
            self._patience.pause()
        except Conflict:
            if self._handler.given_up is None:
                raise
            raise self._handler.given_up(self._request) from None

    def _followed_up(self, before: State, performed: Performed[A]) -> Performed[A]:
        """Record what follows for things that others added while the change was decided, until there is no more."""
        if self._handler.follow_up is None or performed.event is None:
            return performed
        first = performed
        while True:
            state = self._performer._state()
            decision = self._handler.follow_up(before, state, self._request, performed.answer)
            if decision is None:
                # Under a key what was recorded with it is the answer, the first time too.
                return performed if self._accepting is None else first
            try:
                self._project.ledger.append(self._proposals(state, decision))
            except IdempotencyMismatch:
                self._pause()
                continue
            before, performed = state, msgspec.structs.replace(performed, answer=decision.answer)

    def _decide(self) -> tuple[State, Decision[A]]:
        """Decide on the newest state; definitions that must take effect first do so once it is known to be sound."""
        deploys = type(self._request).contract.deploys
        if deploys not in ("first", "regardless"):
            state = self._state(ProjectSources(self._project, in_folder=self._performer._in_folder))
            return state, self._decided(state)
        if self._project.unbegun:  # to look with more than eyes would begin it
            with self._project.looking() as looking:
                sources = ProjectSources(looking)
                state = self._state(sources)
                decision = self._decided(state)
            if not decision.facts:
                return state, decision
        else:
            sources = ProjectSources(self._project)
            state = self._state(sources)
            decision = self._decided(state)
            if state.local.in_force or decision.recorded is not None:
                return state, decision
            if not decision.facts and deploys == "first":
                return state, decision
        if decision.facts:
            self._checked_before()
        catalog = deploy(self._project, sources.loaded, actor=self._actor).catalog
        state = self._state(ProjectSources(self._project, local=catalog))
        return state, self._decided(state)

    def _state(self, sources: ProjectSources) -> State:
        now = self._project.clock()
        return State(sources, now=now, actor=self._actor, key=self._key, begun=self._begun)

    def _decided(self, state: State) -> Decision[A]:
        decision: Decision[A] = self._handler(self._outside, state, self._request)
        return decision

    def _checked_before(self) -> None:
        """Call `before` once: the change is known to be sound, and nothing is written yet."""
        before, self._before = self._before, lambda: None
        before()

    def _record(self, state: State, decision: Decision[A]) -> Performed[A] | None:
        """Record the facts; None where something that matters has happened, and it must be decided again."""
        if decision.recorded is not None:
            before = _recorded(event_of(self._project, decision.recorded))
            if decision.note and self._accepting is not None:
                self._accepting.note(plain(decision.answer), decision.recorded)
            return Performed(answer=decision.answer, event=before, done_before=True, asked_before=True)
        if not decision.facts:
            if self._accepting is not None:
                self._accepting.note(plain(decision.answer))
            return Performed(answer=decision.answer, event=None, done_before=True)
        self._checked_before()
        proposals = self._proposals(state, decision)
        condition: Condition | None = None
        if decision.begins is not None:
            if (condition := self._unbegun(decision, decision.begins)) is None:
                return None
        elif decision.conflicts is not None:
            condition = Condition(position=state.position)
        elif decision.subjects is not None:
            condition = Condition(position=state.position, subjects=decision.subjects)
        for _ in range(_MOST_PASSED_OVER):
            try:
                receipt = self._append(proposals, condition, decision)
            except (AppendConflict, IdempotencyMismatch) as problem:
                if decision.begins is not None:
                    self._begun |= {decision.begins}
                if isinstance(problem, IdempotencyMismatch) or decision.conflicts is None or condition is None:
                    return None
                position = self._passed_over(condition.position, decision.conflicts)
                if position is None or position == condition.position:
                    return None
                condition = Condition(position=position)
                continue
            if receipt.duplicate and decision.conflicts is not None:
                return None  # somebody else did the very same, and is to be named
            event = Recorded(
                event_id=receipt.event_id,
                accepted_at=state.now,
                correlation_id=proposals[decision.main].correlation_id or decision.facts[decision.main].correlation,
            )
            answer = decision.answer
            if receipt.duplicate or self._handler.recall is not None:
                found = event_of(self._project, receipt.event_id)
                event = _recorded(found)
                answer = self._recalled(plain(answer), found)
            return Performed(answer=answer, event=event, done_before=receipt.duplicate)
        return None

    def _proposals(self, state: State, decision: Decision[A]) -> list[Proposal]:
        return [Proposal(fact=fact, occurred_at=state.now, actor=self._actor) for fact in decision.facts]

    def _unbegun(self, decision: Decision[A], subject: str) -> Condition | None:
        """The condition that nothing was ever recorded about a subject; None where something may have been.

        The ledger tells it by one look at its index, so no state need be folded. Nobody can look into the archive while
        appending, but what is there stays as it is.
        """
        trimmed, archive = self._project.ledger.head().trimmed_position, self._project.archive
        kind = decision.facts[decision.main].event_type
        if trimmed and (archive.last_position < trimmed or archive.may_speak_of(subject, kind)):
            self._begun |= {subject}
            return None
        return Condition(position=trimmed, subjects=frozenset({subject}))

    def _append(self, proposals: list[Proposal], condition: Condition | None, decision: Decision[A]) -> Receipt:
        if self._accepting is None:
            return self._project.ledger.append(proposals, condition)[decision.main]
        answer = plain(decision.answer)
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
            name = said_in(fact).get("name")
            raise other_request(self._accepting.request.key, fact.action if name is None else f"{fact.action} ({name})")
        event = event_under(self._project, fact)
        performed = Performed(
            answer=self._recalled(said_in(fact), event),
            event=None if event is None else _recorded(event),
            done_before=True,
            asked_before=True,
        )
        return performed if self._handler.afterwards is None or event is None else self._completed(performed)

    def _recalled(self, said: dict[str, Any], event: RecordedEvent | None) -> A:
        """The answer, with what its event says better than a copy."""
        if event is not None and self._handler.recall is not None:
            said = self._handler.recall(self._performer._state(), said, event)
        answer: A = decoders.convert(said, answer_type(type(self._request)))
        return answer

    def _completed(self, performed: Performed[A]) -> Performed[A]:
        """The answer with what is known only once the change is recorded: under a key, as it was first said."""
        assert self._handler.afterwards is not None
        said = None if self._accepting is None else self._accepting.said_afterwards()
        if said is None:
            outside, state = self._outside, self._performer._state()
            said = self._handler.afterwards(outside, state, plain(performed.answer))
            if self._accepting is not None:
                said = self._accepting.afterwards(said)
        answer: A = decoders.convert(said, answer_type(type(self._request)))
        return msgspec.structs.replace(performed, answer=answer)


def _recorded(event: RecordedEvent) -> Recorded:
    return Recorded(event_id=event.event_id, accepted_at=event.occurred_at, correlation_id=event.correlation_id)


def _named(request: Operation[Any]) -> str:
    """What a request is about, for who is told that others were always first."""
    parameters = type(request).contract.route.parameters
    name = getattr(request, parameters[0]) if parameters else getattr(request, "name", type(request).__name__)
    return f"{name!r:.80}"


# ── identity ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _identity(request: Change[Any], key: str, actor: str) -> Request:
    action = action_of(request)
    return Request(key=key, action=action, fingerprint=fingerprint_of(action, request), actor=actor)
