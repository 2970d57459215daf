"""`servo.Client`: everything that a server can do, by noun and verb.

Beyond the table of operations a client waits, follows logs and events, reads data whole and sends messages.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar, Unpack

import msgspec

from servo import decoders
from servo.answers.assets import Rows
from servo.answers.automations import Accepted
from servo.answers.backfills import BackfillTree
from servo.answers.lineage import LineageGraph
from servo.answers.partitions import AssetWhy, PartitionView, PartitionWhy
from servo.answers.runs import Record, RunView
from servo.answers.server import Event
from servo.client import operations
from servo.client.performer import Noun, Page, Performer, Period, Reading
from servo.client.transport import Patience, Transport, path_of
from servo.errors import Conflict, InvalidInput, ServerUnreachable, ServoError
from servo.local_server import homes_around, owner_token_for
from servo.operations.assets.requests import MOST_ROWS, Explain, ReadData
from servo.operations.lineage.requests import Direction, GetLineageAt
from servo.operations.partitions.requests import ListPartitions, ListPartitionsOf
from servo.operations.runs.requests import ListConflicts, ListLogs

__all__ = ["Client", "until"]

T = TypeVar("T")

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_LOOK_SECONDS = (0.1, 2.0)  # between two looks: at first, and at most
_LARGEST_PAGE = 100
_TRIES = 5


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
        self.schedules = operations.Schedules(performer)
        self.sensors = Sensors(performer)
        self.partitions = Partitions(performer)
        self.assets = Assets(performer)
        self.lineage = Lineage(performer)
        self.materializations = operations.Materializations(performer)
        self.checkpoints = operations.Checkpoints(performer)
        self.audit = Audit(performer)
        self.conflicts = operations.Conflicts(performer)
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
        ready: dict[str, Any] = decoders.decode(self._transport.ask("GET", "/readyz", refused=(503,)).body)
        return ready

    def tick(self) -> dict[str, Any]:
        """Let the server do one pass over schedules and sensors, as `servo tick` does."""
        return self.performer.plain(path_of("internal", "tick"), None)

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


# ── nouns ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Runs(operations.Runs):
    """`client.runs`."""

    def logs(
        self,
        run_id: str,
        *,
        task: str | None = None,
        follow: bool = False,
        limit: int | None = None,
        **reading: Unpack[Reading],
    ) -> Iterator[Record]:
        """What its tasks have said, oldest first; with `follow`, until it has ended."""
        pause = _Pause()
        cursor: str | None = None
        count = 0
        while limit is None or count < limit:
            size = _LARGEST_PAGE if limit is None else min(_LARGEST_PAGE, limit - count)
            found = self._performer.page(ListLogs(run_id=run_id, task=task, limit=size), cursor, reading)
            yield from found.items
            count += len(found.items)
            cursor = found.next_cursor or cursor
            full = len(found.items) == size and found.next_cursor is not None
            if full:
                continue
            if found.more["status"] in ENDED or not follow:
                return
            pause(reset=bool(found.items))

    def wait(
        self, run_id: str, *, timeout: float | None = None, tell: Callable[[RunView], None] | None = None
    ) -> RunView:
        """The run when it has ended, however it did; TimeoutError where it has not by then."""
        return until(lambda: self.get(run_id, fresh=True), lambda run: run.status in ENDED, run_id, timeout, tell)


class Backfills(operations.Backfills):
    """`client.backfills`. One is named by its name or id."""

    def wait(
        self, backfill: str, *, timeout: float | None = None, tell: Callable[[BackfillTree], None] | None = None
    ) -> BackfillTree:
        """Its tree when all of it is over, however it went; TimeoutError where it is not by then."""
        return until(lambda: self.tree(backfill, fresh=True), lambda tree: tree.over, backfill, timeout, tell)


class Assets(operations.Assets):
    """`client.assets`. One is named as `namespace/name`, `namespace.name` or `name`."""

    def why(self, asset: str, **reading: Unpack[Reading]) -> AssetWhy:
        """How many of its partitions are stale, missing or failed, why, and where that began."""
        found = self._performer.answer(Explain(asset=asset), reading)
        assert isinstance(found, AssetWhy)
        return found


class Partitions(operations.Partitions):
    """`client.partitions`."""

    def page(
        self,
        asset: str | None = None,
        *,
        status: str | Sequence[str] = (),
        partitions: str | None = None,
        cursor: str | None = None,
        **options: Unpack[Period],
    ) -> Page[PartitionView]:
        """One page, of an asset or of all; `more["total"]` is how many there are."""
        return self._page(ListPartitions if asset is None else ListPartitionsOf, locals())

    def get(self, asset: str, partition: str, **reading: Unpack[Reading]) -> PartitionView:
        """Everything about one partition."""
        if not partition:  # the only one, of an asset without partitions, has no name to write in a path
            return self.why(asset, "", **reading).partition
        return super().get(asset, partition, **reading)

    def why(self, asset: str, partition: str, **reading: Unpack[Reading]) -> PartitionWhy:
        """Why it is stale, missing or failed, from what it was made, and why it did not run."""
        found = self._performer.answer(Explain(asset=asset, partition=partition), reading)
        assert isinstance(found, PartitionWhy)
        return found


class Lineage(operations.Lineage):
    """`client.lineage`. Without partitions, all of the asset are meant."""

    def at(
        self,
        as_of: datetime | str,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        direction: Direction = "upstream",
        depth: int | None = None,
        run: str | None = None,
        exact: bool = False,
    ) -> LineageGraph:
        """The lineage as it was then."""
        return self._answer(GetLineageAt, locals())


class Data(Noun):
    """`client.data`."""

    def read(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        limit: int | None = None,
        **reading: Unpack[Reading],
    ) -> Rows:
        """Exactly what is current, or was as of then; of all partitions that are there, if none are given."""
        named = (partitions,) if isinstance(partitions, str) else tuple(partitions)
        return self._all(ReadData(asset=asset, partition=named), limit, reading)

    def staged(self, checkpoint_id: str, *, limit: int | None = None, **reading: Unpack[Reading]) -> Rows:
        """What waits to be approved, or did."""
        return self._all(ReadData(checkpoint=checkpoint_id), limit, reading)

    def _all(self, request: ReadData, limit: int | None, reading: Reading) -> Rows:
        """All of it, however many answers that takes; begun anew where something else became current meanwhile."""
        for _ in range(_TRIES):
            found = self._once(request, limit, reading)
            if found is not None:
                return found
        raise Conflict("what is current changes faster than it can be read", hint="ask with as_of")

    def _once(self, request: ReadData, limit: int | None, reading: Reading) -> Rows | None:
        rows: list[list[Any]] = []
        first: Rows | None = None
        while True:
            size = MOST_ROWS if limit is None else min(MOST_ROWS, limit - len(rows))
            wanted = msgspec.structs.replace(request, limit=size, offset=len(rows))
            page = self._performer.answer(wanted, reading)
            first = first or page
            if page.materializations != first.materializations:
                return None
            rows += page.rows
            if page.total_rows is not None or len(rows) == limit:
                # Who asked for no more than there are cannot tell whether there are more.
                known = page.total_rows if limit is None or len(rows) < limit else None
                return msgspec.structs.replace(first, rows=rows, total_rows=known)


class Sensors(operations.Sensors):
    """`client.sensors`. One is named by its name or id."""

    def send(
        self,
        sensor: str,
        data: str | bytes,
        *,
        message_id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        published_at: datetime | None = None,
    ) -> Accepted:
        """Send a message to a push sensor; it is durable when this returns. The same id is the same message."""
        sent = data.encode() if isinstance(data, str) else data
        message = {
            "messageId": token_hex(16) if message_id is None else message_id,
            "data": b64encode(sent).decode(),
            "attributes": dict(attributes or {}),
            **({} if published_at is None else {"publishTime": published_at.isoformat()}),
        }
        accepted = self._performer.plain(path_of("sensors", sensor, "messages"), {"message": message})
        self._performer.remember(accepted["accepted_event_id"])
        new = [] if accepted["duplicate"] else accepted["run_ids"]
        return decoders.convert({"started": new, **accepted, "event_id": accepted["accepted_event_id"]}, Accepted)


class Audit(Noun):
    """`client.audit`. Reports are JSON, to be kept and verified as they are."""

    def report(self, asset: str, partition: str = "", **reading: Any) -> dict[str, Any]:
        """How a partition came about, proven by the ledger's own events; to be kept as it is, as JSON."""
        query = {"asset": asset, "partition": partition, **reading}
        report: dict[str, Any] = self._performer.get(path_of("audit", "report"), query)["data"]
        return report

    def keep(self, asset: str, partition: str = "", *, as_of: datetime | str | None = None) -> dict[str, Any]:
        """The report, and vacuum spares the data that it cites from now on. Takes the role `operator`."""
        then = as_of.isoformat() if isinstance(as_of, datetime) else as_of
        return self._performer.plain(
            path_of("audit", "reports"), {"asset": asset, "partition": partition, "as_of": then}
        )

    def verify(self, report: dict[str, Any]) -> dict[str, Any]:
        """What a report does not prove itself, and what this ledger does not confirm."""
        return self._performer.plain(path_of("audit", "verify"), report)


class _Pause:
    """Between two looks: a little longer each time in which nothing happened."""

    def __init__(self) -> None:
        self._seconds = _LOOK_SECONDS[0]

    def __call__(self, *, reset: bool = False, at_most: float = _LOOK_SECONDS[1]) -> None:
        self._seconds = _LOOK_SECONDS[0] if reset else min(self._seconds * 1.5, _LOOK_SECONDS[1])
        time.sleep(max(0.0, min(self._seconds, at_most)))


def until(
    look: Callable[[], T],
    is_over: Callable[[T], bool],
    what: str,
    timeout: float | None,
    tell: Callable[[T], None] | None,
) -> T:
    """Look again and again until it is over; `tell` is given whatever is new."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _Pause()
    before: T | None = None
    while True:
        state = look()
        if tell is not None and state != before:
            tell(state)
        if is_over(state):
            return state
        left = _LOOK_SECONDS[1] if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{what} has not ended in {timeout:g} s")
        pause(reset=state != before, at_most=left)
        before = state


# ── events as they are appended ──────────────────────────────────────────────────────────────────────────────────


_TRY_AGAIN = (429, 503)


def follow_events(
    transport: Transport, *, after: str, event_type: Sequence[str], correlation_id: str | None, until_now: bool
) -> Iterator[Event]:
    """Events after one, or after `0`, the beginning. A break is no end: it goes on after the last one that came."""
    query = {"event_type": list(event_type), "correlation_id": correlation_id, "until_now": until_now or None}
    last = after
    patience = Patience(transport.retry_seconds)
    while True:
        try:
            connection, response = transport.stream(path_of("events"), query, {"Last-Event-ID": last})
        except ServoError as problem:
            passing = isinstance(problem, ServerUnreachable) or vars(problem).get("status") in _TRY_AGAIN
            if not passing or not patience.pause():
                raise
            continue
        try:
            for event in _events_of(response):
                if event is None:
                    return
                last = event.event_id
                patience = Patience(transport.retry_seconds)
                yield event
        except (OSError, HTTPException) as problem:
            if not patience.pause():
                raise ServerUnreachable(f"the events of {transport.url} broke off: {problem}") from problem
        finally:
            connection.close()
        # A server that ended, ended the stream: another one, or the same again, goes on with it.
        if not patience.pause():
            raise ServerUnreachable(f"the events of {transport.url} broke off", hint="is `servo up` there?")


def _events_of(response: HTTPResponse) -> Iterator[Event | None]:
    """The events of one stream, and None where it says that it is complete. Other comments say that it goes on."""
    data: list[bytes] = []
    while line := response.readline():
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not field and value.strip() == b"end":
            yield None
        elif not field and not value and data:
            yield _EVENT_DECODER.decode(b"\n".join(data))
            data = []


_EVENT_DECODER = decoders.decoder(Event)
