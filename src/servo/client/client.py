"""`servo.Client`: everything that a server can do, by noun and verb."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from servo import decoders
from servo.answers.backfills import BackfillTree
from servo.answers.runs import RunView
from servo.answers.server import Event
from servo.client.nouns import Assets, Audit, Backfills, Data, Lineage, Partitions, Runs, Sensors, follow_events
from servo.client.operations import Checkpoints, Conflicts, Materializations, Schedules
from servo.client.performer import Performer
from servo.client.transport import Transport, path_of
from servo.errors import InvalidInput
from servo.local_server import homes_around, owner_token_for
from servo.operations.runs.requests import ListConflicts

__all__ = ["Client"]


class Client:
    """A running Servo.

    What changes something carries an idempotency key, minted unless given, and is asked for again under the same key
    where the connection was lost or the server said to come back: for `retry_seconds` at most. Reads include what this
    client has written, on whichever server. May be used by many threads.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retry_seconds: float = 30.0,
        fresh: bool = False,
    ) -> None:
        """`url` and `token`: by default SERVO_URL and SERVO_TOKEN. `timeout`: seconds that one answer may take.

        Without a token, that of the owner is taken, where the address is that of this folder's own loopback server.
        With `fresh`, all reads give what the ledger holds when they are asked, and not only what is one's own.
        """
        chosen = url or os.environ.get("SERVO_URL")
        if not chosen:
            raise InvalidInput("which server? no address was given", hint="set SERVO_URL, or write Client('http://…')")
        bearer = token if token is not None else os.environ.get("SERVO_TOKEN") or _owner_token(chosen)
        self._transport = Transport(chosen, bearer, timeout=timeout, retry_seconds=retry_seconds)
        self.performer = performer = Performer(self._transport, fresh=fresh)
        self.runs = Runs(performer)
        self.backfills = Backfills(performer)
        self.schedules = Schedules(performer)
        self.sensors = Sensors(performer)
        self.partitions = Partitions(performer)
        self.assets = Assets(performer)
        self.lineage = Lineage(performer)
        self.materializations = Materializations(performer)
        self.checkpoints = Checkpoints(performer)
        self.audit = Audit(performer)
        self.conflicts = Conflicts(performer)
        self.data = Data(performer)

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def last_event_id(self) -> str | None:
        """The newest event of this client's own. Reads wait for it; another client may be told to, as
        `wait_for_event_id`."""
        return self.performer.last_event_id

    def events(
        self,
        *,
        after: str | None = None,
        event_type: str | Sequence[str] = (),
        correlation_id: str | None = None,
        until_now: bool = False,
    ) -> Iterator[Event]:
        """Events as they are appended, after the one with this id; `0` is the beginning. Without it, from now on, or
        with `until_now` all that there are. A lost connection is made anew, and nothing is missed or repeated."""
        kinds = [event_type] if isinstance(event_type, str) else list(event_type)
        begin = after or ("0" if until_now else self._now())
        return follow_events(
            self._transport, after=begin, event_type=kinds, correlation_id=correlation_id, until_now=until_now
        )

    def ready(self) -> dict[str, Any]:
        """Whether the server can do its work: `status` (ready, degraded or unready), and the `checks` that say it."""
        answer = self._transport.ask("GET", "/readyz", refused=(503,))
        found: dict[str, Any] = decoders.decode(answer.body)
        return found

    def tick(self) -> dict[str, Any]:
        """Let the server do one pass over schedules and sensors, as `servo tick` does."""
        found: dict[str, Any] = self.performer.plain(path_of("internal", "tick"), None)
        return found

    def wait_for_run(
        self, run_id: str, *, timeout: float | None = None, tell: Callable[[RunView], None] | None = None
    ) -> RunView:
        """The run when it has ended; `tell` is given it whenever something has happened."""
        return self.runs.wait(run_id, timeout=timeout, tell=tell)

    def wait_for_backfill(
        self, backfill: str, *, timeout: float | None = None, tell: Callable[[BackfillTree], None] | None = None
    ) -> BackfillTree:
        """The backfill's tree when all of it is over."""
        return self.backfills.wait(backfill, timeout=timeout, tell=tell)

    def close(self) -> None:
        """Close what connections are open. The client may be used again."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def _now(self) -> str:
        """The newest event. Asked for before anything is followed, so that a break right away loses nothing."""
        mark = self.performer.page(ListConflicts(limit=1), reading={"fresh": True}).watermark
        return "0" if mark is None or mark.event_id is None else mark.event_id


def _owner_token(url: str) -> str | None:
    try:
        return owner_token_for(url, lambda: homes_around(Path.cwd()))
    except FileNotFoundError:  # the current folder is gone
        return None
