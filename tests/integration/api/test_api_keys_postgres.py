"""The same key sent to two servers on one PostgreSQL at once: one effect, and the same answer from both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.api.serving import serving
from servo.events import RecordedEvent
from servo.events.access import RequestAccepted
from servo.runtime import load_settings, open_workspace
from tests.support.served import PREFIX, SHOP
from tests.support.workshop import Workshop, deployed_workshop

pytest_plugins = ("tests.contract.fixtures",)

TIMES, THREADS = 50, 10


class Pair:
    """Two servers, and whatever they record."""

    def __init__(self, place: Workshop, urls: list[str]) -> None:
        self.place, self.urls = place, urls

    def send(self, number: int, method: str, path: str, body: dict[str, Any], key: str) -> httpx.Response:
        url = f"{self.urls[number % 2]}{PREFIX}{path}"
        how: dict[str, Any] = {"params": body} if method == "DELETE" else {"json": body}
        return httpx.request(method, url, headers={"Idempotency-Key": key}, timeout=60, **how)

    def recorded(self, after: int) -> list[RecordedEvent]:
        return list(self.place.project.history.events(after))


@pytest.fixture
def pair(tmp_path: Path, new_database: Callable[[], str]) -> Iterator[Pair]:
    with ExitStack() as stack:
        place = stack.enter_context(deployed_workshop(tmp_path, SHOP, toml=f'ledger = "{new_database()}"\n'))
        urls = []
        for _ in range(2):
            project = stack.enter_context(open_workspace(load_settings(tmp_path, {})))
            nothing: Any = lambda *_: None  # noqa: E731 (there are no sensors to ask)
            urls.append(stack.enter_context(serving(project, user_code=nothing, driver=nothing, port=0)).url)
        yield Pair(place, urls)


def test_two_servers_do_it_once_and_say_the_same(pair: Pair) -> None:
    mine = {"name": "mine", "cron": "0 2 * * *", "select": ["totals"]}
    for method, path, body, other, event_type in (
        ("POST", "/schedules", mine, mine | {"cron": "0 3 * * *"}, "ScheduleCreated"),
        ("POST", "/schedules/mine/pause", {"expected_state_version": 1}, {}, "SchedulePaused"),
        ("DELETE", "/schedules/mine", {"reason": "old"}, {"reason": "x"}, "ScheduleDeleted"),
        ("POST", "/runs", {"select": ["totals"]}, {"select": ["totals"], "priority": 1}, "RunRequested"),
    ):
        key, head = f"{method} {path}", pair.place.project.ledger.head().position
        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(
                pool.map(lambda number: pair.send(number, method, path, body, key), range(TIMES))  # noqa: B023 (waited for)
            )
        assert Counter(answer.status_code for answer in answers) == {202: 1, 200: TIMES - 1}, answers[0].text
        assert len({answer.text for answer in answers}) == 1, key
        types = Counter(event.event_type for event in pair.recorded(head))
        assert types.pop(RequestAccepted.event_type, 0) <= 1
        assert types == {event_type: 1}
        head = pair.place.project.ledger.head().position
        refused = [pair.send(number, method, path, other, key) for number in range(2)]
        assert [(one.status_code, one.json()["code"]) for one in refused] == [(409, "idempotency-mismatch")] * 2
        again = [pair.send(number, method, path, body, key) for number in range(2)]
        assert [(one.status_code, one.text) for one in again] == [(200, answers[0].text)] * 2
        assert pair.recorded(head) == []
