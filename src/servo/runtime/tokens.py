"""Tokens: who may act in this workspace over the network, in which role, and until when.

A token is 32 random bytes and is shown once. The ledger keeps its SHA-256 and nothing else of it: of something that
long and random a plain hash cannot be turned round, so no slow hash is needed, and every server knows every token.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from threading import Lock
from typing import Any

import msgspec

from servo.errors import AppendConflict, Conflict, IdempotencyMismatch, InvalidInput, TokenNotFound
from servo.events import Proposal, RecordedEvent, decode
from servo.events.access import TokenCreated, TokenRevoked, token_subject
from servo.ledger.protocol import Condition
from servo.local_server import TOKEN_PREFIX
from servo.runtime.keyed_requests import Patience
from servo.runtime.wiring import Project

PREFIX = TOKEN_PREFIX
_BYTES = 32
# No colon: nobody is to be taken for a controller, a schedule or a person of this machine.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_LIFETIME = re.compile(r"([0-9]{1,6})\s*(m|h|d|w)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LIST = """
    SELECT token_id, name, role, expires_at, created_at, created_by, revoked_at, revoked_by, revocation_reason
    FROM tokens WHERE created_version IS NOT NULL ORDER BY created_version
"""
_REVOKED = "SELECT revoked_version, revoked_at FROM tokens WHERE token_id = $token_id"


class Role(IntEnum):
    """The roles of tokens; each may do what those before it may.

    A viewer looks; an operator also starts, stops and changes work; an approver also decides checkpoints; an admin may
    do everything.
    """

    viewer = 1
    operator = 2
    approver = 3
    admin = 4


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its text."""

    token_id: str
    name: str
    role: str
    status: str  # live, expired, revoked
    tenant: str
    workspace: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revocation_reason: str | None = None


class MintedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new token, and its text: the only time that anybody sees it."""

    token: str
    token_id: str
    name: str
    role: str
    tenant: str
    workspace: str
    created_at: datetime
    event_id: str
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"MintedToken(name={self.name!r}, role={self.role!r}, token=…)"


class TokenRevocation(msgspec.Struct, frozen=True, kw_only=True):
    """The revocation of a token; `duplicate` if it was revoked before."""

    token_id: str
    name: str
    event_id: str
    revoked_at: datetime
    duplicate: bool = False


def hash_of(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def role_named(name: str) -> Role:
    try:
        return Role[name]
    except KeyError:
        raise InvalidInput(f"{name!r:.80} is no role", hint=f"use one of {', '.join(Role.__members__)}") from None


def lifetime(text: str) -> timedelta:
    """Parse the lifetime of a token: 12h, 90d, 8w."""
    found = _LIFETIME.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise InvalidInput(f"{text!r:.80} is no length of time", hint="write 30m, 12h, 90d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


class Tokens:
    """The tokens of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def create(self, name: str, role: str, *, lives: timedelta | None = None, actor: str) -> MintedToken:
        """Make a token. Its name is its bearer's in every record, so no two live tokens have the same."""
        if not _NAME.fullmatch(name):
            hint = "use 1 to 63 letters, digits and . _ @ -, a letter or a digit first"
            raise InvalidInput(f"{name!r:.80} cannot be the name of a token", hint=hint)
        project, now = self._project, self._project.clock()
        try:
            expires_at = None if lives is None else (now + lives).astimezone(UTC)
        except OverflowError:
            raise InvalidInput("no token lives that long", hint="leave its end out, or give fewer days") from None
        token = PREFIX + token_urlsafe(_BYTES)
        fact = TokenCreated(
            token_id=project.mint(),
            name=name,
            role=role_named(role).name,
            secret_hash=hash_of(token),
            expires_at=expires_at,
        )
        patience = Patience(f"token {name}")
        while True:
            position = project.ledger.head().position
            self._require_free(name)
            condition = Condition(position=position, subjects=frozenset({token_subject(name)}))
            try:
                receipts = project.ledger.append([Proposal(fact=fact, occurred_at=now, actor=actor)], condition)
                break
            except AppendConflict:
                patience.pause()
        return MintedToken(
            token=token,
            token_id=fact.token_id,
            name=name,
            role=fact.role,
            tenant=project.workspace.tenant,
            workspace=project.workspace.name,
            created_at=now,
            event_id=receipts[0].event_id,
            expires_at=expires_at,
        )

    def list(self, *, everything: bool = False) -> list[Token]:
        """The live tokens, oldest first; with `everything` also those that have expired or were revoked."""
        return [token for token in self._select() if everything or token.status == "live"]

    def revoke(self, token: str, *, reason: str | None = None, actor: str) -> TokenRevocation:
        """End a token, given its id, the name of a live one, or the text of the token itself, such as one found."""
        now, found = self._project.clock(), self._find(token)
        if found.revoked_at is None:
            fact = TokenRevoked(token_id=found.token_id, name=found.name, reason=reason)
            with suppress(IdempotencyMismatch):  # somebody else has just revoked it, for another reason
                (receipt,) = self._project.ledger.append([Proposal(fact=fact, occurred_at=now, actor=actor)])
                if not receipt.duplicate:
                    return TokenRevocation(
                        token_id=found.token_id, name=found.name, event_id=receipt.event_id, revoked_at=now
                    )
        (first,) = self._project.query(_REVOKED, {"token_id": found.token_id}).rows
        return TokenRevocation(
            token_id=found.token_id, name=found.name, event_id=first[0], revoked_at=first[1], duplicate=True
        )

    def _find(self, token: str) -> Token:
        if token.startswith(PREFIX):
            found = self._select("secret_hash = $value", hash_of(token))
        else:
            found = self._select("name = $value OR token_id = $value", token)
            exact = [one for one in found if one.token_id == token]
            found = exact or [one for one in found if one.status == "live"] or found[-1:]
        if not found:
            # Not the text itself: it may be a token.
            raise TokenNotFound("there is no such token", hint="`servo token list --all` names them all")
        return found[-1]

    def _require_free(self, name: str) -> None:
        if any(one.status == "live" for one in self._select("name = $value", name)):
            raise Conflict(
                f"there is a live token named {name}",
                hint=f"give this one another name, or revoke it: servo token revoke {name}",
            )

    def _select(self, where: str = "true", value: str | None = None) -> Sequence[Token]:
        sql = _LIST.replace("WHERE", f"WHERE ({where}) AND")
        parameters = {} if value is None else {"value": value}
        return [self._token(row) for row in self._project.query(sql, parameters).dicts()]

    def _token(self, row: dict[str, Any]) -> Token:
        expires = row["expires_at"]
        expired = expires is not None and expires <= self._project.clock()
        status = "revoked" if row["revoked_at"] is not None else "expired" if expired else "live"
        scope = self._project.workspace
        return Token(**row, status=status, tenant=scope.tenant, workspace=scope.name)


# ── bearers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


_FRESH_SECONDS = 1.0
_MOST_EVENTS = 20_000  # that are read through; of more, the projections know it sooner
_LOAD = """
    SELECT token_id, name, role, secret_hash, expires_at FROM tokens
    WHERE created_version IS NOT NULL AND revoked_version IS NULL
"""
_KINDS = frozenset({TokenCreated.event_type, TokenRevoked.event_type})


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """The bearer of a token: the actor that is recorded, and its role. Local access has no token id."""

    actor: str
    role: Role
    token_id: str | None = None


class TokenBook:
    """The tokens of one workspace that were not revoked. Threads share it."""

    def __init__(self, project: Project, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._project = project
        self._monotonic = monotonic
        self._lock = Lock()
        self._by_hash: dict[str, TokenCreated] = {}
        self._position: int | None = None  # of the ledger, up to which this is known
        self._looked = 0.0

    def at_hand(self, token: str) -> Bearer | None:
        """The bearer, if it is known and fresh; never blocks. Where this is None, ask `bearer`."""
        if self._position is None or self._monotonic() - self._looked > _FRESH_SECONDS:
            return None
        return self._bearer(hash_of(token))

    def moment(self) -> float:
        """The time now, to be given to `bearer` as `arrived`."""
        return self._monotonic()

    def bearer(self, token: str, arrived: float | None = None) -> Bearer | None:
        """The bearer of a token; None if it is wrong, expired, revoked, or of another workspace. May block.

        An unknown token is refused only after a look at the ledger that began after it `arrived`. However many come at
        the same time, one look serves all that came before it.
        """
        arrived = self._monotonic() if arrived is None else arrived
        if not token.startswith(PREFIX) or len(token) > 200:
            return None
        digest = hash_of(token)
        self._look_again(lambda now: self._looked >= now - _FRESH_SECONDS)
        if digest not in self._by_hash:
            self._look_again(lambda _: self._looked > arrived)
        return self._bearer(digest)

    @property
    def live(self) -> int:
        """The number of tokens that are valid now."""
        self._look_again(lambda _: False)
        return sum(self._lives(one) for one in self._by_hash.values())

    def _bearer(self, digest: str) -> Bearer | None:
        token = self._by_hash.get(digest)
        if token is None or not compare_digest(token.secret_hash, digest) or not self._lives(token):
            return None
        return Bearer(actor=token.name, role=Role[token.role], token_id=token.token_id)

    def _lives(self, token: TokenCreated) -> bool:
        return token.expires_at is None or self._project.clock() < token.expires_at

    def _look_again(self, unless: Callable[[float], bool]) -> None:
        with self._lock:
            now = self._monotonic()
            if self._position is not None and unless(now):
                return
            head = self._project.ledger.head().position
            if self._position is None or not 0 <= head - self._position <= _MOST_EVENTS:
                self._load()
            else:
                self._follow(self._position)
            self._looked = now  # as of before the look: what it saw is at least as new

    def _load(self) -> None:
        answer = self._project.query(_LOAD)
        tokens = [TokenCreated(**row) for row in answer.dicts() if row["role"] in Role.__members__]
        self._by_hash = {token.secret_hash: token for token in tokens}
        self._position = answer.watermark.position

    def _follow(self, position: int) -> None:
        by_hash = dict(self._by_hash)
        for events in self._project.follower.new_events(position):
            for event in events:
                if event.event_type in _KINDS:
                    _take(by_hash, event)
            position = events[-1].position
        self._by_hash, self._position = by_hash, position


def _take(by_hash: dict[str, TokenCreated], event: RecordedEvent) -> None:
    fact = decode(event)
    match fact:
        case TokenCreated() if fact.role in Role.__members__:
            by_hash[fact.secret_hash] = fact
        case TokenRevoked():
            for digest in [digest for digest, token in by_hash.items() if token.token_id == fact.token_id]:
                del by_hash[digest]
