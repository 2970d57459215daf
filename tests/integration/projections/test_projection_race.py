"""Many at the projections at once: one publishes, the others are told, and readers see whole versions only."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from msgspec.structs import replace

from servo.errors import FencedOut
from servo.faults import arm
from servo.ledger.verify import verify
from servo.projections.compactor import Compactor
from servo.projections.store import Store
from servo.runtime import load_settings, open_workspace
from servo.runtime.maintenance import Maintenance
from tests.integration.projection_support import (
    Place,
    assert_same,
    cancels,
    differences,
    mixed,
    rows_of,
    rows_of_fold,
    whole,
)

SECONDS = 5.0


def settled(place: Place) -> None:
    """Nothing is corrupt: the current version is whole, catches up, and equals a replay from nothing."""
    whole(place.store, place.store.current())
    caught_up = place.compact()
    assert caught_up.watermark.position == place.ledger.head().position
    whole(place.store, caught_up)
    scratch = Store(place.folder / "scratch")
    compactor = Compactor(scratch, place.history, clock=place.clock, mint=place.mint_text)
    assert differences((place.store, caught_up), (scratch, compactor.replay())) == {}
    compactor.close()
    assert verify(place.history).problems == []


def test_the_newer_of_two_compactors_publishes(place: Place) -> None:
    place.ledger.append(mixed(80))
    with place.compactor() as older, place.compactor() as newer:
        with pytest.raises(FencedOut, match=r"epoch 2.*epoch 1"):
            older.compact()
        assert place.store.current().version == 0, "what was fenced out is seen by nobody"
        published = newer.compact()
        assert (published.version, published.epoch) == (1, 2)
        with pytest.raises(FencedOut):
            older.replay()
        assert older.compact() == published, "there is nothing left to do, so nothing to be fenced from"
    settled(place)


@pytest.mark.parametrize("point", ["compact.begin", "compact.after_file", "compact.after_files"])
def test_taken_over_in_the_middle(place: Place, point: str) -> None:
    place.ledger.append(mixed(80))
    taken: list[int] = []

    def take_over() -> None:
        if not taken:
            taken.append(place.store.take_epoch())

    with place.compactor() as compactor, arm(point, take_over), pytest.raises(FencedOut):
        compactor.compact()
    assert taken == [2]
    assert place.store.current().version == 0
    settled(place)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))


def test_a_version_out_of_turn_is_refused(place: Place) -> None:
    """Without a newer epoch too: a compactor that looked, and then looked away, may not publish over what came."""
    place.ledger.append(mixed(40))
    with place.compactor() as compactor:
        seen = place.store.current()
        first = compactor.compact()
        place.ledger.append(mixed(60)[40:])
        for version in (seen.version + 1, first.version + 2):
            with pytest.raises(FencedOut, match="does not follow"):
                place.store.publish(replace(first, version=version))
    assert place.store.current() == first
    settled(place)


def compact_and_stop(folder: Path, out: Path) -> None:
    """Stop this very process between its files and their publication; say what happened once it goes on."""
    place = Place(folder)
    with place.compactor() as compactor, arm("compact.after_files", lambda: os.kill(os.getpid(), signal.SIGSTOP)):
        try:
            compactor.compact()
            out.write_text("published")
        except FencedOut as problem:
            out.write_text(f"fenced: {problem}")


def test_a_paused_compactor_comes_back(place: Place, tmp_path: Path) -> None:
    place.ledger.append(mixed(80))
    out = tmp_path / "out"
    paused = processes()(target=compact_and_stop, args=(tmp_path, out))
    paused.start()
    assert paused.pid is not None
    until(lambda: state_of(paused) == "T")
    assert not out.exists()
    place.ledger.append(mixed(120)[80:])
    published = place.compact()
    os.kill(paused.pid, signal.SIGCONT)
    paused.join(30)
    assert paused.exitcode == 0
    assert out.read_text().startswith("fenced: a newer compactor (epoch 2) took over from epoch 1")
    assert place.store.current() == published
    settled(place)


# ── taking turns ─────────────────────────────────────────────────────────────────────────────────────────────────


def compact_in_turn(folder: Path, start: Barrier, out: Path, delay: float, patience: float) -> None:
    place = Place(folder)
    start.wait(600)
    time.sleep(delay)
    try:
        with place.store.working(patience), place.compactor() as compactor, arm("compact.begin", slowly):
            out.write_text(f"at {compactor.compact().watermark.position}")
            compactor.remove_unneeded_files()
    except FencedOut as problem:
        out.write_text(f"aside: {problem}")


def slowly() -> None:
    time.sleep(0.3)


@pytest.mark.parametrize("patience", [0.0, 60.0], ids=["stepping aside", "waiting"])
def test_ten_compactors_one_after_the_other(place: Place, tmp_path: Path, patience: float) -> None:
    """Nobody's work is taken away in the middle: each publishes, or steps aside before it has begun."""
    place.ledger.append(mixed(80))
    start = multiprocessing.get_context("forkserver").Barrier(10)
    outs = [tmp_path / f"{number}.out" for number in range(10)]
    started = [
        processes()(target=compact_in_turn, args=(tmp_path, start, out, number * 0.05, patience))
        for number, out in enumerate(outs)
    ]
    for one in started:
        one.start()
    for one in started:
        one.join(120)
    said = [out.read_text() for out in outs]
    aside = [text for text in said if "is at work on the projections" in text]
    assert said.count("at 80") + len(aside) == 10
    assert said.count("at 80") >= 1 if patience == 0 else not aside
    assert place.store.current().version == 1
    settled(place)


def test_a_read_during_a_replay_does_not_fence_it(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"SERVO_TAIL_EVENTS": "3", "SERVO_TENANT": "acme"})
    answers: list[int] = []
    with open_workspace(settings, create=True) as replaying, open_workspace(settings) as reading:
        replaying.ledger.append(cancels(20))

        def read() -> None:
            answers.append(Maintenance(reading).query("SELECT count(*) FROM runs").rows[0][0])

        with arm("compact.after_files", read):
            assert Maintenance(replaying).replay(check=False).version == 1
        assert answers == [20]
        assert reading.store.current().replayed == 1
        # Who asks for a compaction waits for its turn, but not for ever.
        with replaying.store.working(), pytest.raises(FencedOut, match=f"process {os.getpid()} is at work"):
            Maintenance(reading).compact(timeout=0.2)
        assert Maintenance(reading).compact().version == 1


def processes() -> Callable[..., BaseProcess]:
    return multiprocessing.get_context("forkserver").Process


def state_of(process: BaseProcess) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ── for some seconds ─────────────────────────────────────────────────────────────────────────────────────────────


def keep_appending(folder: Path, start: Barrier, out: Path, name: str) -> None:
    place, number = Place(folder), 0
    start.wait(600)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        place.ledger.append(cancels(5, f"{name}-{number}-"))
        number += 1
        time.sleep(0.005)
    out.write_text(json.dumps({"appended": number * 5}))


def keep_compacting(folder: Path, start: Barrier, out: Path) -> None:
    place, published, fenced = Place(folder), 0, 0
    start.wait(600)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with place.compactor() as compactor:
            try:
                for _ in range(3):
                    published += compactor.compact().version > 0
            except FencedOut:
                fenced += 1
                time.sleep(random.uniform(0.0, 0.5))  # or both would go on fencing each other out
            compactor.remove_unneeded_files()
    out.write_text(json.dumps({"published": published, "fenced": fenced}))


def keep_reading(folder: Path, start: Barrier, out: Path) -> None:
    """After position p there are p runs: whatever else an answer says, it is not that of a whole version."""
    place = Place(folder)
    reader = place.reader()
    reader.query("SELECT 1 FROM runs", fresh=True)  # loading Arrow takes longer than the race
    versions, last, last_files, answers = set(), 0, 0, 0
    start.wait(600)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        answer = reader.query("SELECT count(*), count(DISTINCT run_id) FROM runs", fresh=answers % 2 == 0)
        position = answer.watermark.position
        assert answer.rows == [(position, position)]
        assert position >= last, "time does not go back for one reader"
        manifest = place.store.current()
        assert manifest.watermark.position >= last_files
        whole(place.store, manifest)
        versions.add(manifest.version)
        last, last_files, answers = position, manifest.watermark.position, answers + 1
    out.write_text(json.dumps({"answers": answers, "versions": len(versions)}))


def test_for_some_seconds(place: Place, tmp_path: Path) -> None:
    place.ledger.append(cancels(10, "first"))
    process = processes()
    start = multiprocessing.get_context("forkserver").Barrier(6)
    outs = [tmp_path / f"{number}.json" for number in range(6)]
    started = [
        process(target=keep_appending, args=(tmp_path, start, outs[0], "a")),
        process(target=keep_appending, args=(tmp_path, start, outs[1], "b")),
        process(target=keep_compacting, args=(tmp_path, start, outs[2])),
        process(target=keep_compacting, args=(tmp_path, start, outs[3])),
        process(target=keep_reading, args=(tmp_path, start, outs[4])),
        process(target=keep_reading, args=(tmp_path, start, outs[5])),
    ]
    for one in started:
        one.start()
    for one in started:
        one.join(60)
    assert [one.exitcode for one in started] == [0] * len(started)
    said = [json.loads(out.read_text()) for out in outs]
    assert 10 + said[0]["appended"] + said[1]["appended"] == place.ledger.head().position
    assert said[2]["published"] + said[3]["published"] > 2
    assert said[2]["fenced"] + said[3]["fenced"] > 0, "they never met"
    for reader in said[4:]:
        assert reader["answers"] > 2
        assert reader["versions"] > 1
    settled(place)
    assert place.reader().query("SELECT count(*) FROM runs").rows == [(place.ledger.head().position,)]
