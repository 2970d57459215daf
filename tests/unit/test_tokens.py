"""Tokens: made, shown once, kept as hashes; known to every server, and to none once they are over."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from servo.errors import Conflict, InvalidInput, LedgerUnavailable, TokenNotFound
from servo.events import Proposal, decode
from servo.events.access import TokenCreated, TokenRevoked
from servo.events.model import RunCancelRequested
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.tokens import MintedToken, Role, TokenBook, Tokens, lifetime

START = datetime(2025, 1, 15, 12, tzinfo=UTC)
ME = "person:alice"


class Time:
    """The clock of the project, and the one that books count by: both stand still until the test moves them."""

    def __init__(self) -> None:
        self.now, self.passed = START, 100.0

    def __call__(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.passed += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def project(tmp_path: Path, time: Time) -> Iterator[Project]:
    with open_workspace(load_settings(tmp_path, {}), create=True, clock=time) as opened:
        yield opened


@pytest.fixture
def book(project: Project, time: Time) -> TokenBook:
    return TokenBook(project, monotonic=lambda: time.passed)


def made(project: Project, name: str = "ci", role: str = "operator", **more: timedelta) -> MintedToken:
    return Tokens(project).create(name, role, actor=ME, **more)


def test_a_token_is_long_random_and_nowhere_in_the_project(project: Project, tmp_path: Path) -> None:
    tokens = {made(project, f"t{n}").token for n in range(20)}
    assert len(tokens) == 20
    assert all(token.startswith("servo_") and len(token) == len("servo_") + 43 for token in tokens)
    with project.compactor() as compactor:
        compactor.compact()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert kept
    assert not [token for token in tokens if token.encode() in kept or token[6:].encode() in kept]
    assert sha256(min(tokens).encode()).hexdigest().encode() in kept


def test_what_is_shown_and_logged_of_a_new_token_is_not_the_token(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        minted = made(project)
    assert minted.token not in repr(minted)
    assert minted.token not in str(Tokens(project).list())
    assert minted.token not in caplog.text


def test_the_ledger_says_who_gave_whom_what(project: Project) -> None:
    minted = made(project, "ci", "approver", lives=timedelta(days=90))
    Tokens(project).revoke("ci", reason="it was leaked", actor="person:bob")
    created, revoked = project.history.events()
    fact = decode(created)
    assert isinstance(fact, TokenCreated)
    assert (fact.name, fact.role, fact.expires_at) == ("ci", "approver", START + timedelta(days=90))
    assert (created.actor, created.event_id) == (ME, minted.event_id)
    assert decode(revoked) == TokenRevoked(token_id=minted.token_id, name="ci", reason="it was leaked")
    (token,) = Tokens(project).list(everything=True)
    assert (token.status, token.created_by, token.revoked_by) == ("revoked", ME, "person:bob")
    assert (token.tenant, token.workspace) == ("default", "default")
    assert Tokens(project).list() == []


def test_a_name_belongs_to_one_live_token(project: Project, time: Time) -> None:
    first = made(project, "ci", lives=timedelta(hours=1))
    with pytest.raises(Conflict, match="live token named ci"):
        made(project)
    time.later(3600)
    second = made(project)
    Tokens(project).revoke("ci", actor=ME)  # the live one, and not the one that has expired
    assert [(one.token_id, one.status) for one in Tokens(project).list(everything=True)] == [
        (first.token_id, "expired"),
        (second.token_id, "revoked"),
    ]
    assert made(project).token not in (first.token, second.token)


def test_of_many_who_want_a_name_at_once_one_gets_it(project: Project) -> None:
    project.ledger.head()

    def attempt(_: int) -> str | None:
        try:
            return made(project).token_id
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as threads:
        given = [one for one in threads.map(attempt, range(8)) if one]
    assert len(given) == 1
    assert [token.token_id for token in Tokens(project).list(everything=True)] == given


@pytest.mark.parametrize(
    "name", ["", "a b", "person:alice", "controller:dispatch", "ä", "x" * 64, "-x", "a\nb", "../x"]
)
def test_names_that_could_pass_for_somebody_else_are_refused(project: Project, name: str) -> None:
    with pytest.raises(InvalidInput, match="name of a token"):
        made(project, name)
    with pytest.raises(InvalidInput, match="is no role"):
        made(project, "ci", "root")
    assert project.ledger.head().position == 0


def test_revoking_twice_is_revoking_once(project: Project) -> None:
    minted = made(project)
    first = Tokens(project).revoke(minted.token_id, reason="lost", actor=ME)
    again = Tokens(project).revoke(minted.token_id, reason="found", actor="person:bob")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.event_id, again.revoked_at) == (first.event_id, first.revoked_at)
    assert project.ledger.head().position == 2


def test_a_token_that_was_found_is_revoked_by_itself(project: Project, book: TokenBook) -> None:
    minted = made(project)
    made(project, "other")
    assert Tokens(project).revoke(minted.token, actor=ME).name == "ci"
    assert book.bearer(minted.token) is None
    with pytest.raises(TokenNotFound) as problem:
        Tokens(project).revoke("servo_" + "x" * 43, actor=ME)
    assert "xxx" not in str(problem.value)


@pytest.mark.parametrize(("text", "length"), [("30m", 1800), ("12h", 43_200), ("90d", 7_776_000), (" 2 w ", 1_209_600)])
def test_lifetimes(text: str, length: int) -> None:
    assert lifetime(text).total_seconds() == length


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1", "1y", "1.5h", "9999999d", "d"])
def test_no_lifetimes(text: str) -> None:
    with pytest.raises(InvalidInput, match="no length of time"):
        lifetime(text)


def test_a_token_cannot_outlive_the_calendar(project: Project) -> None:
    with pytest.raises(InvalidInput, match="lives that long"):
        made(project, lives=lifetime("999999w"))


# ── the book ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_book_knows_whose_token_it_is(project: Project, book: TokenBook) -> None:
    minted = made(project, "ci", "approver")
    bearer = book.bearer(minted.token)
    assert bearer is not None
    assert (bearer.actor, bearer.role, bearer.token_id) == ("ci", Role.approver, minted.token_id)
    assert book.at_hand(minted.token) == bearer
    for other in (
        "",
        "servo_",
        minted.token[:-1],
        minted.token + "x",
        minted.token.upper(),
        "servo_\udcff",
        "x" * 10**6,
    ):
        assert book.bearer(other) is None


def test_a_token_that_was_just_made_is_known_at_once(project: Project, book: TokenBook, time: Time) -> None:
    first = made(project, "first")
    assert book.bearer(first.token)
    second = made(project, "second")
    # Not even a moment later: what is known is as fresh as can be.
    assert book.at_hand(second.token) is None
    assert book.bearer(second.token)


def test_a_revoked_token_is_refused_within_two_seconds(project: Project, book: TokenBook, time: Time) -> None:
    minted, kept = made(project), made(project, "kept")
    assert book.bearer(minted.token)
    Tokens(project).revoke("ci", actor=ME)
    time.later(1.99)
    assert book.at_hand(minted.token) is None
    assert book.bearer(minted.token) is None
    assert book.bearer(kept.token)
    assert book.live == 1


def test_an_expired_token_is_refused_at_its_moment(project: Project, book: TokenBook, time: Time) -> None:
    minted = made(project, lives=timedelta(minutes=1))
    time.later(59)
    assert book.bearer(minted.token)
    time.later(0.9)
    assert book.at_hand(minted.token)
    time.later(0.1)
    assert book.at_hand(minted.token) is None
    assert book.bearer(minted.token) is None
    assert book.live == 0


def test_a_fresh_book_asks_nobody(project: Project, book: TokenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    minted = made(project)
    assert book.bearer(minted.token)
    monkeypatch.setattr(project.ledger, "head", unreachable)
    assert book.at_hand(minted.token)
    assert book.bearer(minted.token)


def test_where_the_ledger_is_away_nobody_is_let_in_on_old_knowledge(
    project: Project, book: TokenBook, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    minted = made(project)
    assert book.bearer(minted.token)
    time.later(1.5)
    monkeypatch.setattr(project.ledger, "head", unreachable)
    assert book.at_hand(minted.token) is None
    with pytest.raises(LedgerUnavailable):
        book.bearer(minted.token)


def unreachable(*_: object, **__: object) -> None:
    raise LedgerUnavailable("the ledger is away", hint="wait")


def test_guesses_do_not_keep_the_ledger_busy(
    project: Project, book: TokenBook, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(project)
    assert book.live == 1
    looks, head = [], project.ledger.head
    monkeypatch.setattr(project.ledger, "head", lambda *args: looks.append(args) or head(*args))
    arrived = book.moment()
    time.later(0.001)
    for n in range(100):  # all came before the first was looked at
        assert book.bearer(f"servo_{n:043d}", arrived) is None
    assert len(looks) < 5  # one look may ask more than once


@pytest.mark.parametrize("most", [0, 20_000])
def test_a_book_that_fell_behind_comes_to_the_same(
    project: Project, book: TokenBook, time: Time, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Whether it reads the events or the projections."""
    monkeypatch.setattr("servo.runtime.tokens._MOST_EVENTS", most)
    monkeypatch.setattr("servo.ledger.follower._STEP", 3)
    gone, kept = made(project, "gone"), made(project, "kept")
    assert book.live == 2
    for n in range(10):
        fact = RunCancelRequested(run_id=f"run_{n}")
        project.ledger.append([Proposal(fact=fact, occurred_at=time.now, actor=ME)])
    Tokens(project).revoke("gone", actor=ME)
    late = made(project, "late")
    time.later(5)
    assert [bool(book.bearer(one.token)) for one in (gone, kept, late)] == [False, True, True]


@pytest.mark.parametrize("place", [{"SERVO_TENANT": "other"}, {"SERVO_WORKSPACE": "other"}])
def test_tokens_of_others_are_nobodys(project: Project, tmp_path: Path, time: Time, place: dict[str, str]) -> None:
    """In one and the same ledger: another tenant, another workspace."""
    mine = made(project)
    with open_workspace(load_settings(tmp_path, place), create=True, clock=time) as other:
        theirs = made(other)  # also under the same name
        assert TokenBook(other).bearer(mine.token) is None
        assert TokenBook(other).bearer(theirs.token)
        assert [token.token_id for token in Tokens(other).list()] == [theirs.token_id]
        with pytest.raises(TokenNotFound):
            Tokens(other).revoke(mine.token, actor=ME)
    assert TokenBook(project).bearer(theirs.token) is None


def test_roles_are_in_order() -> None:
    assert list(Role) == sorted([Role.viewer, Role.operator, Role.approver, Role.admin])
