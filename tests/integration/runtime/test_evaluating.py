"""Sensors and the functions of schedules in other processes: whatever they do, neighbours are answered on time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from servo.assets.evaluation import Message
from servo.runtime import Settings, load_settings
from servo.runtime.evaluation.pool import Asked, Evaluation, EvaluatorPool, Question

NOW = datetime(2025, 3, 1, 6, tzinfo=UTC)

PROJECT = """
    import os, subprocess, sys, threading, time
    import servo
    from servo import asset

    days = servo.Daily("date", start="2025-01-01", timezone="Europe/Berlin")

    @asset(partitions=days)
    def orders(): ...

    @asset(partitions=servo.Dynamic("customer"))
    def accounts(): ...

    def new_days(since):
        return [day for day in ("2025-01-01", "2025-01-02", "2025-01-03") if since is None or day > since]

    @servo.sensor
    def landing(context):
        for day in new_days(since=context.cursor):
            yield servo.RunRequest(key=day, select="orders+", partitions=[day])
            context.cursor = day

    @servo.sensor
    def counts(context):
        globals()["calls"] = globals().get("calls", 0) + 1
        context.cursor = f"{os.getpid()}:{calls}"

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────

    @servo.sensor
    def hangs(context):
        print("about to sleep")
        time.sleep(1_000)

    @servo.sensor
    def exits(context):
        os._exit(0)

    @servo.sensor
    def says_exit(context):
        sys.exit(3)

    @servo.sensor
    def crashes(context):
        os.kill(os.getpid(), 11)

    @servo.sensor
    def eats(context):
        taken = []
        while True:
            taken.append(b"x" * 1_000_000)

    @servo.sensor
    def eats_slowly(context):
        globals().setdefault("kept", []).append(bytearray(60_000_000))
        context.cursor = str(os.getpid())

    @servo.sensor
    def raises(context):
        raise LookupError("no such\\nbucket")

    @servo.sensor
    def raises_oddly(context):
        class Odd(Exception):
            def __str__(self):
                raise ValueError("not even that")
        raise Odd()

    @servo.sensor
    def prints(context):
        for line in range(300_000):
            print("line", line, "x" * 50)

    @servo.sensor
    def prints_in_c(context):
        os.write(1, b"from below\\xff\\n")
        subprocess.run(["sh", "-c", "echo from a child; echo and an error >&2"], check=True)
        context.log.info("logged")

    @servo.sensor
    def spawns(context):
        for detached in (False, True):
            subprocess.Popen(["sleep", "4711"], start_new_session=detached)
        subprocess.Popen(["sh", "-c", "sleep 4711 & wait"])
        print("spawned", flush=True)
        time.sleep(1_000)

    @servo.sensor
    def forks(context):
        os.fork()
        context.cursor = "once"

    @servo.sensor
    def closes(context):
        os.closerange(0, 256)

    @servo.sensor
    def reads(context):
        context.cursor = repr(sys.stdin.read())

    # ── rubbish ──────────────────────────────────────────────────────────────────────────────────────────────

    def returning(name, make):
        def function(context):
            return make(context)
        return servo.sensor(name=name, code_version=name)(function)

    def setting(value):
        def make(context):
            context.cursor = value
        return make

    class Unspeakable:
        def __repr__(self):
            raise ValueError

    def request(**options):
        return servo.RunRequest(**{"select": "orders", **options})

    def late_skip(context):
        yield request(key="a")
        raise servo.Skip("too late")

    def forever(context):
        while True:
            yield request(key="a")

    rubbish = [
        returning("number", lambda context: 5),
        returning("text", lambda context: "orders"),
        returning("mapping", lambda context: {"select": "orders"}),
        returning("item", lambda context: [request(), "orders"]),
        returning("unspeakable", lambda context: Unspeakable()),
        returning("skip_returned", lambda context: servo.Skip("x")),
        returning("cursor_number", setting(5)),
        returning("cursor_long", setting("x" * 70_000)),
        returning("cursor_half", setting("\\ud800")),
        returning("many", forever),
        returning("long_key", lambda context: request(key="k" * 600)),
        returning("long_request", lambda context: request(partitions=["x" * 80_000])),
        returning("no_selection", lambda context: request(select=" ")),
        returning("no_dimension", lambda context: context.add_partitions("nowhere", ["a"])),
        returning("added", lambda context: context.add_partitions("customer", [f"c{n}" for n in range(10_001)])),
        returning("late_skip", late_skip),
    ]

    # ── other kinds ──────────────────────────────────────────────────────────────────────────────────────────

    @servo.sensor
    def skips(context):
        raise servo.Skip("nothing\\n to do")

    @servo.sensor
    def adds(context):
        context.add_partitions("customer", ["acme", "zenith"])
        return servo.RunRequest(key="x", select="accounts", partitions="acme", tags={"who": "me"})

    @servo.sensor(kind="push")
    def told(context):
        body = context.message.json()
        assert context.message.published_at.year == 2025
        return servo.RunRequest(select="orders", partitions=body["day"], tags=context.message.attributes)

    @servo.schedule(cron="0 6 * * *", timezone="Europe/Berlin", select="orders", tags={"by": "clock"})
    def nightly(tick):
        assert tick.name == "nightly"
        if tick.scheduled_for.day == 2:
            raise servo.Skip("a holiday")
        if tick.scheduled_for.day == 3:
            return None
        if tick.scheduled_for.day == 4:
            return 5
        if tick.scheduled_for.day == 5:
            return []
        return [f"{tick.scheduled_for:%Y-%m-%d %H:%M %Z}", "2025-01-07"]
"""


def ask(name: str, *, timeout: float = 20, **options: object) -> Question:
    return Question(kind="sensor", name=name, now=NOW, timeout=timeout, **options)  # type: ignore[arg-type]


def settings_of(root: Path, text: str = PROJECT, **variables: str) -> Settings:
    (root / "definitions.py").write_text(dedent(text))
    return load_settings(root, {"SERVO_SENSORS_MEMORY_MB": "128", **variables})


@pytest.fixture(scope="module")
def evaluators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvaluatorPool]:
    with EvaluatorPool(settings_of(tmp_path_factory.mktemp("project"))) as made:
        yield made


def processes(text: str) -> list[int]:
    """Those whose command line, or working directory, has this in it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if text in line or text in str((folder / "cwd").readlink()):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def gone(text: str, within: float = 5.0) -> bool:
    until = time.monotonic() + within
    while processes(text):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


# ── what is well ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sensor_yields_requests_and_moves_its_cursor(evaluators: EvaluatorPool) -> None:
    done = evaluators.evaluate(ask("landing", cursor="2025-01-01"))
    assert done.requests == [
        Asked(key=day, select="orders+", partitions=(day,)) for day in ("2025-01-02", "2025-01-03")
    ]
    assert (done.cursor, done.error, done.skip, done.added) == ("2025-01-03", None, None, {})
    assert done.seconds < 20
    again = evaluators.evaluate(ask("landing", cursor=done.cursor))
    assert (again.requests, again.cursor, again.error) == ([], "2025-01-03", None)


def test_a_sensor_may_skip(evaluators: EvaluatorPool) -> None:
    done = evaluators.evaluate(ask("skips", cursor="7"))
    assert (done.skip, done.error, done.cursor, done.requests) == ("nothing to do", None, "7", [])


def test_a_sensor_may_add_partitions(evaluators: EvaluatorPool) -> None:
    done = evaluators.evaluate(ask("adds"))
    assert done.added == {"customer": ["acme", "zenith"]}
    assert done.requests == [Asked(key="x", select="accounts", partitions=("acme",), tags={"who": "me"})]


def test_a_push_sensor_gets_the_message(evaluators: EvaluatorPool) -> None:
    message = Message(id="1", data=b'{"day": "2025-01-01"}', attributes={"from": "ü"}, published_at=NOW)
    done = evaluators.evaluate(ask("told", message=message))
    assert done.error is None
    assert done.requests == [Asked(select="orders", partitions=("2025-01-01",), tags={"from": "ü"})]
    assert evaluators.evaluate(ask("told")).error == "it is a push sensor, and there is no message"
    bad = evaluators.evaluate(ask("told", message=Message(id="1", data=b"\x00" * 1_000_000)))
    assert re.fullmatch(r"message '1' is not JSON: .+ \(definitions\.py:\d+\)", bad.error or "")


def test_the_function_of_a_schedule_says_which_partitions(evaluators: EvaluatorPool) -> None:
    def tick(day: int) -> Evaluation:
        due = datetime(2025, 4, day, 4, tzinfo=UTC)
        return evaluators.evaluate(Question(kind="schedule", name="nightly", now=NOW, scheduled_for=due))

    done = tick(1)
    partitions = ("2025-04-01 06:00 CEST", "2025-01-07")
    assert done.requests == [Asked(select="orders", partitions=partitions, tags={"by": "clock"})]
    assert (tick(2).skip, tick(2).requests) == ("a holiday", [])
    assert tick(3).skip == "the function returned nothing"
    assert tick(4).error == "it returned 5, which is neither a text nor a list of texts"
    assert tick(5).skip == "the function named no partitions"


def test_names_that_are_not_there(evaluators: EvaluatorPool) -> None:
    assert evaluators.evaluate(ask("nobody")).error == "the project's code has no sensor nobody"
    done = evaluators.evaluate(Question(kind="schedule", name="nobody", now=NOW, scheduled_for=NOW))
    assert done.error == "the project's code has no schedule nobody with a function"


def test_a_process_is_used_again(evaluators: EvaluatorPool) -> None:
    first, second = (evaluators.evaluate(ask("counts")).cursor for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.split(":")[0] == second.split(":")[0]
    assert int(second.split(":")[1]) == int(first.split(":")[1]) + 1


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("hangs", "it took longer than 1.5 s and was stopped"),
        ("spawns", "it took longer than 1.5 s and was stopped"),
        ("exits", "its process ended with exit code 0 before it answered"),
        ("says_exit", "SystemExit: 3 (definitions.py:LINE)"),
        ("crashes", "its process was ended by SIGSEGV (a crash in native code) before it answered"),
        ("closes", "its process .* before it answered"),
        ("eats", "it took more than 128 MB of memory"),
        ("raises", "LookupError: no such bucket (definitions.py:LINE)"),
        ("raises_oddly", "Odd: <Odd> (definitions.py:LINE)"),
        ("number", "it returned 5, which is no RunRequest"),
        ("text", "it returned 'orders', which is no RunRequest"),
        ("mapping", "it returned {'select': 'orders'}, which is no RunRequest"),
        ("item", "it asked for 'orders', which is no RunRequest"),
        ("unspeakable", "it returned <Unspeakable>, which is no RunRequest"),
        ("skip_returned", "it returned Skip('x'), which is no RunRequest"),
        ("cursor_number", "it set context.cursor to 5, which is not a text"),
        ("cursor_long", "it set context.cursor to a text of 70,000 bytes; 65,536 are the most"),
        ("cursor_half", "it set context.cursor to a text with half a character in it"),
        ("many", "it asked for more than 1,000 runs; move the cursor, and go on the next time"),
        ("long_key", "request '" + "k" * 79 + " has a key of 600 characters; 512 are the most"),
        ("long_request", "request 1 is 80,[0-9]+ bytes long; 65,536 are the most"),
        ("no_selection", 'a run request selects nothing (write select="orders+") (definitions.py:LINE)'),
        (
            "no_dimension",
            "no asset has a dynamic dimension 'nowhere' (there are customer) (definitions.py:LINE)",
        ),
        ("added", "it added more than 10,000 partitions; move the cursor, and go on the next time"),
        ("late_skip", "it raised Skip after it had asked for 1 runs"),
    ],
)
def test_whatever_a_sensor_does_is_one_line_and_its_neighbour_is_on_time(
    evaluators: EvaluatorPool, name: str, error: str
) -> None:
    with ThreadPoolExecutor(2) as pool:
        wrong = pool.submit(evaluators.evaluate, ask(name, cursor="before", timeout=1.5))
        neighbour = pool.submit(evaluators.evaluate, ask("landing")).result()
        done = wrong.result()
    assert (len(neighbour.requests), neighbour.error) == (3, None)
    pattern = error if "[0-9]" in error or ".*" in error else re.escape(error).replace("LINE", r"\d+")
    assert re.fullmatch(pattern, done.error or "")
    assert (done.requests, done.cursor, done.skip, done.added) == ([], "before", None, {})
    assert evaluators.evaluate(ask("landing")).error is None


def test_what_was_said_before_it_was_stopped_is_known(evaluators: EvaluatorPool) -> None:
    assert evaluators.evaluate(ask("hangs", timeout=0.5)).log == "about to sleep\n"
    log = evaluators.evaluate(ask("raises")).log
    assert log.startswith("Traceback")
    assert "in raises" in log
    assert "user_functions.py" not in log


def test_all_that_is_printed_is_taken_and_the_end_of_it_kept(evaluators: EvaluatorPool) -> None:
    done = evaluators.evaluate(ask("prints"))
    assert done.error is None
    assert len(done.log) == 4096
    assert done.log.endswith(f"line 299999 {'x' * 50}\n")
    log = evaluators.evaluate(ask("prints_in_c")).log
    assert log == "from below\nfrom a child\nand an error\nINFO sensor.prints_in_c: logged\n"
    assert evaluators.evaluate(ask("landing")).log == ""


def test_what_a_sensor_started_ends_with_it(evaluators: EvaluatorPool) -> None:
    done = evaluators.evaluate(ask("spawns", timeout=1))
    assert done.log == "spawned\n"
    assert gone("sleep 4711")


def test_a_copy_that_a_sensor_makes_of_its_process_answers_nothing(evaluators: EvaluatorPool) -> None:
    assert evaluators.evaluate(ask("forks")).cursor == "once"
    assert evaluators.evaluate(ask("landing")).cursor == "2025-01-03"


def test_there_is_nothing_to_read(evaluators: EvaluatorPool) -> None:
    assert evaluators.evaluate(ask("reads")).cursor == "''"


def test_a_process_that_keeps_much_is_replaced_before_it_has_no_room(tmp_path: Path) -> None:
    with EvaluatorPool(settings_of(tmp_path)) as evaluators:
        done = [evaluators.evaluate(ask("eats_slowly")) for _ in range(6)]
    assert [one.error for one in done] == [None] * 6
    assert len({one.cursor for one in done}) > 1


# ── many at once ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_sixteen_threads_ask_at_once(evaluators: EvaluatorPool) -> None:
    def work(number: int) -> list[Evaluation]:
        return [evaluators.evaluate(ask("landing", cursor=None if n % 2 else "2025-01-02")) for n in range(number, 30)]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(work, range(16)))
    for number, done in enumerate(answers):
        assert [len(one.requests) for one in done] == [3 if n % 2 else 1 for n in range(number, 30)]
        assert {one.error for one in done} == {None}


def test_no_more_than_are_wanted_are_kept(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with EvaluatorPool(settings_of(tmp_path), processes=2) as evaluators:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(evaluators.evaluate, [ask("hangs", timeout=1), *[ask("landing")] * 30]))
        assert len(processes(str(tmp_path))) <= 3  # these, and the one that forks
        assert evaluators.evaluate(ask("landing")).error is None
    assert gone(str(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_those_that_hang_delay_nobody(tmp_path: Path) -> None:
    with EvaluatorPool(settings_of(tmp_path), processes=1) as evaluators, ThreadPoolExecutor(12) as pool:
        evaluators.evaluate(ask("landing"))
        hanging = [pool.submit(evaluators.evaluate, ask("hangs", timeout=20)) for _ in range(10)]
        time.sleep(0.3)
        assert evaluators.evaluate(ask("landing")).error is None
        assert not any(one.done() for one in hanging), "it did not wait for them"
        evaluators.close()
        assert {one.result().error for one in hanging} == {"it was stopped: Servo is closing"}


def test_there_is_a_bound_to_how_many_are_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servo.runtime.evaluation.pool._MOST", 2)
    with EvaluatorPool(settings_of(tmp_path), processes=1) as evaluators, ThreadPoolExecutor(4) as pool:
        evaluators.evaluate(ask("landing"))
        hanging = [pool.submit(evaluators.evaluate, ask("hangs", timeout=2)) for _ in range(2)]
        time.sleep(0.3)
        refused = evaluators.evaluate(ask("landing", timeout=0.3))
        assert refused.error == "all 2 processes that evaluate were at work all the time"
        assert evaluators.evaluate(ask("landing", timeout=10)).error is None  # its turn comes when those were stopped
        assert all(one.result().error for one in hanging)


# ── definitions change, and processes end ────────────────────────────────────────────────────────────────────────

SLOW = """
    import time
    import servo

    @servo.asset
    def a(): ...

    @servo.sensor
    def slow(context):
        time.sleep(1)
        context.cursor = "old"
"""


def test_after_a_renewal_the_new_code_answers_and_what_is_under_way_goes_on(tmp_path: Path) -> None:
    with EvaluatorPool(settings_of(tmp_path, SLOW)) as evaluators, ThreadPoolExecutor(4) as pool:
        assert evaluators.evaluate(ask("slow")).cursor == "old"
        under_way = [pool.submit(evaluators.evaluate, ask("slow")) for _ in range(3)]
        time.sleep(0.3)
        settings_of(tmp_path, SLOW.replace("time.sleep(1)", "pass").replace('"old"', '"new"'))
        evaluators.renew()
        assert evaluators.evaluate(ask("slow")).cursor == "new"
        assert [one.result().cursor for one in under_way] == ["old"] * 3
        assert evaluators.evaluate(ask("slow")).cursor == "new"
        assert len(processes(str(tmp_path))) == 2  # of the old ones none is left
    assert gone(str(tmp_path))


def test_questions_and_renewals_at_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, SLOW.replace("time.sleep(1)", "time.sleep(0.01)"))
    with EvaluatorPool(settings) as evaluators, ThreadPoolExecutor(4) as pool:
        done = [pool.submit(evaluators.evaluate, ask("slow")) for _ in range(200)]
        for _ in range(4):
            time.sleep(0.1)
            evaluators.renew()
        assert [one.result().error for one in done] == [None] * 200
    assert gone(str(tmp_path))


def test_definitions_that_do_not_load_are_an_error_until_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EvaluatorPool(settings_of(tmp_path, "oops\n")) as evaluators:
        assert evaluators.evaluate(ask("slow")).error == "definitions.py:1: NameError: name 'oops' is not defined"
        settings_of(tmp_path, SLOW)
        assert evaluators.evaluate(ask("slow")).error is not None  # not loaded again at every question
        evaluators.renew()
        assert evaluators.evaluate(ask("slow")).error is None
        settings_of(tmp_path, "import os\nos._exit(5)\n")
        evaluators.renew()
        assert evaluators.evaluate(ask("slow", cursor="c")) == Evaluation(
            error="the process that loads the project's definitions ended: it said nothing (ended with exit code 5)",
            unasked=True,
            cursor="c",
            seconds=pytest.approx(0, abs=10),  # type: ignore[arg-type]
        )
        monkeypatch.setattr("servo.runtime.evaluation.pool._AGAIN_SECONDS", 0.0)
        settings_of(tmp_path, SLOW)
        assert evaluators.evaluate(ask("slow")).error is None  # also where nobody says that they were mended
    assert gone(str(tmp_path))


def test_closing_stops_what_is_under_way_and_nothing_is_answered_any_more(tmp_path: Path) -> None:
    evaluators = EvaluatorPool(settings_of(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        evaluators.evaluate(ask("landing"))
        under_way = pool.submit(evaluators.evaluate, ask("spawns"))
        time.sleep(0.5)
        evaluators.close()
        assert under_way.result().error == "it was stopped: Servo is closing"
    assert evaluators.evaluate(ask("landing")).error == "nothing is evaluated any more: Servo is closing"
    evaluators.renew()
    evaluators.close()
    assert gone(str(tmp_path))


def test_while_definitions_are_loading_it_can_be_closed(tmp_path: Path) -> None:
    evaluators = EvaluatorPool(settings_of(tmp_path, "import time\ntime.sleep(1_000)\n"))
    asking = threading.Thread(target=evaluators.evaluate, args=(ask("slow"),))
    asking.start()
    time.sleep(1)
    evaluators.close()
    asking.join(5)
    assert not asking.is_alive()
    assert gone(str(tmp_path))


def test_when_the_process_that_forks_is_killed_another_takes_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EvaluatorPool(settings_of(tmp_path)) as evaluators:
        first = evaluators.evaluate(ask("counts")).cursor or ""
        pid = int(first.partition(":")[0])
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().split()[3]), signal.SIGKILL)
        until = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
            time.sleep(0.01)  # the kernel ends its children
        assert not Path(f"/proc/{pid}").exists()
        assert [evaluators.evaluate(ask("counts")).error for _ in range(3)] == [None] * 3
    assert gone(str(tmp_path))
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("the process that evaluates sensors and schedules was ended by SIGKILL"), told
    assert "another one is started" in told


def test_a_process_that_crashes_between_two_questions_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EvaluatorPool(settings_of(tmp_path)) as evaluators:
        pid = int((evaluators.evaluate(ask("counts")).cursor or "").partition(":")[0])
        os.kill(pid, signal.SIGSEGV)
        until = time.monotonic() + 60
        while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" and time.monotonic() < until:
            time.sleep(0.01)  # its parent waits for it when it is asked to
        assert [evaluators.evaluate(ask("counts")).error for _ in range(2)] == [None] * 2
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "was ended by SIGSEGV (a crash in native code) while nothing was asked of it" in told


PARENT = """
    import sys, threading
    from datetime import UTC, datetime
    from pathlib import Path
    from servo.runtime import load_settings
    from servo.runtime.evaluation.pool import EvaluatorPool, Question

    evaluators = EvaluatorPool(load_settings(Path(sys.argv[1]), {}))
    def ask(name):
        return evaluators.evaluate(Question(kind="sensor", name=name, now=datetime.now(UTC)))
    if sys.argv[2] != "loading":
        ask("landing")
    print("ready", flush=True)
    threading.Thread(target=ask, args=("spawns",)).start()
    ask("hangs")
"""


@pytest.mark.parametrize("moment", ["at work", "loading"])
def test_when_the_parent_is_killed_nothing_remains(tmp_path: Path, moment: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    settings_of(root, PROJECT if moment == "at work" else "import time\ntime.sleep(1_000)\n")
    command = [sys.executable, "-c", dedent(PARENT), str(root), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        # The parent, whose command line names the folder, and the one that forks; those that it has forked, and what
        # one of them has started: two, a shell, and what that has started.
        expected = 8 if moment == "at work" else 2
        until = time.monotonic() + 60
        while len(processes(str(root))) < expected and time.monotonic() < until:
            time.sleep(0.05)
        assert len(processes(str(root))) >= expected
        parent.kill()
    assert gone(str(root))
    assert gone("sleep 4711")


def test_a_question_may_take_no_longer_than_it_says(evaluators: EvaluatorPool) -> None:
    assert evaluators.evaluate(ask("hangs", timeout=0.2)).error == "it took longer than 0.2 s and was stopped"


# ── watches ──────────────────────────────────────────────────────────────────────────────────────────────────────

WATCHING = """
    import servo

    @servo.asset(partitions=servo.Daily("date", start="2025-01-01"))
    def raw(): ...

    files = servo.NewFiles("landing/{date}/*.json")
    landed = servo.on(files, name="landed", select="raw+", partitions="{date}")

    @servo.sensor(watch=files)
    def looks(context):
        print("called with", len(context.found))
        for file in context.found:
            yield servo.RunRequest(key=file.key, select="raw", partitions=file.values["date"])

    @servo.sensor(watch=files)
    def meddles(context):
        context.cursor = "mine"

    @servo.sensor(watch=files)
    def declines(context):
        raise servo.Skip("not today")
"""


@pytest.mark.parametrize(("name", "select"), [("landed", "raw+"), ("looks", "raw")])
def test_a_watch_finds_what_is_new_and_moves_the_cursor(tmp_path: Path, name: str, select: str) -> None:
    with EvaluatorPool(settings_of(tmp_path, WATCHING)) as evaluators:
        nothing = evaluators.evaluate(ask(name))
        assert (nothing.requests, nothing.error, nothing.log) == ([], None, "")
        (tmp_path / "landing" / "2025-01-02").mkdir(parents=True)
        (tmp_path / "landing" / "2025-01-02" / "a.json").write_text("{}")
        done = evaluators.evaluate(ask(name, cursor=nothing.cursor))
        assert done.error is None
        [asked] = done.requests
        assert (asked.select, asked.partitions) == (select, ("2025-01-02",))
        assert asked.key
        assert done.log == ("called with 1\n" if name == "looks" else "")
        again = evaluators.evaluate(ask(name, cursor=done.cursor))
        assert (again.requests, again.cursor, again.error, again.log) == ([], done.cursor, None, "")
        wrong = evaluators.evaluate(ask(name, cursor="not of this kind"))
        assert wrong.error is not None
        assert "\n" not in wrong.error
        assert (wrong.cursor, wrong.requests) == ("not of this kind", [])


def test_a_watch_alone_moves_its_cursor(tmp_path: Path) -> None:
    (tmp_path / "landing" / "2025-01-02").mkdir(parents=True)
    (tmp_path / "landing" / "2025-01-02" / "a.json").write_text("{}")
    with EvaluatorPool(settings_of(tmp_path, WATCHING)) as evaluators:
        assert evaluators.evaluate(ask("meddles")).error == "it set context.cursor, which its watch moves"
        skipped = evaluators.evaluate(ask("declines"))
        assert (skipped.skip, skipped.error, skipped.requests) == ("not today", None, [])
        assert evaluators.evaluate(ask("declines", cursor=skipped.cursor)).skip is None  # it has seen that file
