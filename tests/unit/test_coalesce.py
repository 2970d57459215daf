"""The same question is answered once for all who ask at once, and never with what was found before they asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from servo.api import coalesce as asked
from servo.api.coalesce import Coalescer
from servo.api.threads import Threads

T = TypeVar("T")


class Slow:
    """Work that goes on when it is told to, and knows how often it was begun."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self._go = threading.Semaphore(0)

    def __call__(self, asked: float) -> bytes:
        self.begun.append(asked)
        number = len(self.begun)
        assert self._go.acquire(timeout=30)
        if number == 13:
            raise ValueError("unlucky")
        return str(number).encode()

    def go(self) -> None:
        self._go.release()


def serve(story: Callable[[Coalescer], Awaitable[T]], *, many: int = 100) -> T:
    async def told() -> T:
        threads = Threads(requests=8)
        async with threads.serving(None):  # type: ignore[arg-type]
            return await story(Coalescer(threads, many=many))

    return asyncio.run(told())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def test_who_asks_while_an_answer_is_made_shares_the_one_after_it() -> None:
    slow = Slow()

    async def story(questions: Coalescer) -> list[bytes]:
        first = asyncio.create_task(questions.answer("how many", slow))
        await until(lambda: len(slow.begun) == 1)
        # What is being made may have been found before they asked.
        others = [asyncio.create_task(questions.answer("how many", slow)) for _ in range(50)]
        await asyncio.sleep(0.01)
        assert len(slow.begun) == 1
        slow.go()
        await until(lambda: len(slow.begun) == 2)
        slow.go()
        return [await first, *[await other for other in others]]

    assert serve(story) == [b"1"] + [b"2"] * 50
    assert slow.begun[0] <= slow.begun[1]


def test_an_answer_is_told_when_the_last_who_shares_it_asked() -> None:
    slow = Slow()

    async def story(questions: Coalescer) -> tuple[float, float]:
        clock = asyncio.get_running_loop().time
        first = asyncio.create_task(questions.answer("q", slow))
        await until(lambda: len(slow.begun) == 1)
        second = asyncio.create_task(questions.answer("q", slow))
        await asyncio.sleep(0.02)
        before = clock()
        third = asyncio.create_task(questions.answer("q", slow))
        await asyncio.sleep(0)
        slow.go()
        slow.go()
        assert await first == b"1"
        assert await second == await third == b"2"
        return before, slow.begun[1]

    before, told = serve(story)
    assert told >= before


def test_other_questions_do_not_wait() -> None:
    slow, quick = Slow(), Slow()
    quick.go()

    async def story(questions: Coalescer) -> bytes:
        waiting = asyncio.create_task(questions.answer("slow", slow))
        answer = await questions.answer("quick", quick)
        slow.go()
        await waiting
        return answer

    assert serve(story) == b"1"


def test_who_asks_later_asks_anew() -> None:
    slow = Slow()

    async def story(questions: Coalescer) -> list[bytes]:
        answers = []
        for _ in range(3):
            slow.go()
            answers.append(await questions.answer("q", slow))
        assert not questions._begun
        assert not questions._next
        return answers

    assert serve(story) == [b"1", b"2", b"3"]


def test_who_goes_away_takes_nothing_from_the_others() -> None:
    slow = Slow()

    async def story(questions: Coalescer) -> bytes:
        gone = asyncio.create_task(questions.answer("q", slow))
        await until(lambda: len(slow.begun) == 1)
        gone_too = asyncio.create_task(questions.answer("q", slow))
        stays = asyncio.create_task(questions.answer("q", slow))
        await asyncio.sleep(0)
        for one in (gone, gone_too):
            one.cancel()
            with suppress(asyncio.CancelledError):
                await one
        slow.go()
        slow.go()
        return await stays

    assert serve(story) == b"2"


def test_what_fails_fails_for_all_who_share_it_and_for_nobody_after() -> None:
    slow = Slow()
    slow.begun = [0.0] * 12

    async def story(questions: Coalescer) -> bytes:
        failing = asyncio.create_task(questions.answer("q", slow))
        await until(lambda: len(slow.begun) == 13)
        after = asyncio.create_task(questions.answer("q", slow))
        await asyncio.sleep(0)
        slow.go()
        with pytest.raises(ValueError, match="unlucky"):
            await failing
        slow.go()
        return await after

    assert serve(story) == b"14"


def test_while_there_is_much_to_do_who_does_not_insist_is_given_what_was_found_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asked, "A_MOMENT", 3600.0)  # whatever machine this is
    slow, others = Slow(), [Slow(), Slow()]

    async def story(questions: Coalescer) -> list[bytes]:
        busy = [asyncio.create_task(questions.answer(number, work)) for number, work in enumerate(others)]
        await until(lambda: all(work.begun for work in others))
        slow.go()
        answers = [await questions.answer("q", slow, lenient=True)]
        answers += [await questions.answer("q", slow, lenient=True) for _ in range(5)]
        slow.go()
        answers.append(await questions.answer("q", slow))  # who insists
        for work in others:
            work.go()
        await asyncio.gather(*busy)
        slow.go()
        answers.append(await questions.answer("q", slow, lenient=True))  # there is nothing else to do
        return answers

    assert serve(story, many=2) == [b"1"] * 6 + [b"2", b"3"]


def test_what_was_given_long_ago_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "A_MOMENT", 0.0)
    slow, other = Slow(), Slow()

    async def story(questions: Coalescer) -> list[bytes]:
        busy = asyncio.create_task(questions.answer("other", other))
        await until(lambda: bool(other.begun))
        answers = []
        for _ in range(3):
            slow.go()
            answers.append(await questions.answer("q", slow, lenient=True))
        other.go()
        await busy
        assert len(questions._given) <= 1
        return answers

    assert serve(story, many=1) == [b"1", b"2", b"3"]
