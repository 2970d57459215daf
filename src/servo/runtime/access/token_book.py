"""Who a token belongs to, for a server that is asked so thousands of times a second.

It follows the ledger, looks again once what it knows is a second old, and at once for a token that it does not know.
So a token that was revoked anywhere is refused everywhere within two seconds, and one that was just made is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from hmac import compare_digest
from threading import Lock

import msgspec

from servo.events import RecordedEvent, decode
from servo.events.access import TokenCreated, TokenRevoked
from servo.runtime.access.tokens import PREFIX, Role, hash_of
from servo.runtime.wiring import Project

__all__ = ["Bearer", "TokenBook"]

_FRESH_SECONDS = 1.0
_MOST_EVENTS = 20_000  # that are read through; of more, the projections know it sooner
_LOAD = """
    SELECT token_id, name, role, secret_hash, expires_at FROM tokens
    WHERE created_version IS NOT NULL AND revoked_version IS NULL
"""
_KINDS = frozenset({TokenCreated.event_type, TokenRevoked.event_type})


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: under which name it is recorded, and what they may do. Who needs no token has no token's id."""

    actor: str
    role: Role
    token_id: str | None = None


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    token_id: str
    name: str
    role: Role
    secret_hash: str
    expires_at: datetime | None = None


class TokenBook:
    """The tokens of one workspace that were not revoked. Threads share it."""

    def __init__(self, project: Project, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._project = project
        self._monotonic = monotonic
        self._lock = Lock()
        self._by_hash: dict[str, _Known] = {}
        self._position: int | None = None  # of the ledger, up to which this is known
        self._looked = 0.0

    def at_hand(self, token: str) -> Bearer | None:
        """Whose it is, if that is known and fresh: does not block. None says nothing; ask `bearer` then."""
        if self._position is None or self._monotonic() - self._looked > _FRESH_SECONDS:
            return None
        return self._bearer(hash_of(token))

    def moment(self) -> float:
        """For `bearer`: when somebody came with a token."""
        return self._monotonic()

    def bearer(self, token: str, arrived: float | None = None) -> Bearer | None:
        """Whose token this is; None if nobody's: wrong, expired, revoked, or of another workspace. May block.

        Nobody is refused for a token that nobody knows but by a look that began after they `arrived` with it. However
        many guess at the same time, one look is for all who came before it.
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
        """How many tokens are worth something now."""
        self._look_again(lambda _: False)
        return sum(self._lives(one) for one in self._by_hash.values())

    def _bearer(self, digest: str) -> Bearer | None:
        known = self._by_hash.get(digest)
        if known is None or not compare_digest(known.secret_hash, digest) or not self._lives(known):
            return None
        return Bearer(actor=known.name, role=known.role, token_id=known.token_id)

    def _lives(self, known: _Known) -> bool:
        return known.expires_at is None or self._project.clock() < known.expires_at

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
        found = [
            _Known(token_id=token_id, name=name, role=Role[role], secret_hash=digest, expires_at=expires_at)
            for token_id, name, role, digest, expires_at in answer.rows
            if role in Role.__members__
        ]
        self._by_hash = {one.secret_hash: one for one in found}
        self._position = answer.watermark.position

    def _follow(self, position: int) -> None:
        by_hash = dict(self._by_hash)
        for events in self._project.follower.new_events(position):
            for event in events:
                if event.event_type in _KINDS:
                    _take(by_hash, event)
            position = events[-1].position
        self._by_hash, self._position = by_hash, position


def _take(by_hash: dict[str, _Known], event: RecordedEvent) -> None:
    fact = decode(event)
    match fact:
        case TokenCreated() if fact.role in Role.__members__:
            by_hash[fact.secret_hash] = _Known(
                token_id=fact.token_id,
                name=fact.name,
                role=Role[fact.role],
                secret_hash=fact.secret_hash,
                expires_at=fact.expires_at,
            )
        case TokenRevoked():
            for digest in [digest for digest, one in by_hash.items() if one.token_id == fact.token_id]:
                del by_hash[digest]
