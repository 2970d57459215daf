"""Schedules and sensors as a project declares them: what is made of them, what is refused, and what is deployed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

import servo
from servo import Message, NewFiles, NewPartitions, RunRequest, Schedule, SensorContext, Skip, schedule, sensor
from servo.assets.automation import Sensor
from servo.assets.loading import Definitions, examine, load
from servo.errors import InvalidDefinition, InvalidInput, InvalidPartition
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.planning.deployed import fingerprint, schedule_of, sensor_of

NOW = datetime(2025, 3, 1, tzinfo=UTC)


class Place(msgspec.Struct):
    root: Path
    definitions: str | None = None
    namespace: str = "shop"


class Project:
    def __init__(self, root: Path) -> None:
        self.place = Place(root)

    def loaded(self, text: str) -> Definitions:
        self._write(text)
        return load(self.place)

    def problems(self, text: str) -> list[str]:
        self._write(text)
        definitions, found = examine(self.place)
        assert definitions is None
        return [str(one.error()) for one in found]

    def _write(self, text: str) -> None:
        begin = "from datetime import timedelta\nimport servo\nfrom servo import asset\n"
        (self.place.root / "definitions.py").write_text(begin + dedent(text))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_fills_in_the_partitions_of_a_schedule() -> None:
    @schedule(cron="0 6 * * *", timezone="Europe/Berlin", select="revenue", overlap="skip", tags={"team": "sales"})
    def nightly(tick):
        """Last week."""
        return "2025-01-01..2025-01-07"

    assert isinstance(nightly, Schedule)
    assert (nightly.name, nightly.cron, nightly.timezone) == ("nightly", "0 6 * * *", "Europe/Berlin")
    assert (nightly.select, nightly.partitions, nightly.overlap) == ("revenue", None, "skip")
    assert (nightly.tags, nightly.description) == ({"team": "sales"}, "Last week.")
    assert nightly.source is not None
    assert nightly.source.file == __file__
    assert nightly(None) == "2025-01-01..2025-01-07"
    assert nightly.code_version is not None
    assert len(nightly.code_version) == 12

    @schedule(name="other", cron="0 6 * * *", select="revenue", code_version="7")
    def another(tick): ...

    assert (another.name, another.code_version) == ("other", "7")


def test_a_schedule_without_a_function_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="nightly has no function"):
        Schedule("nightly", cron="0 6 * * *", select="x")(None)


async def _asynchronous(tick: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "function", "said"),
    [
        ({"cron": "0 25 * * *"}, lambda tick: None, "is not a cron: bad hour"),
        ({"timezone": "Mars/Base"}, lambda tick: None, "there is no timezone 'Mars/Base'"),
        ({"select": ""}, lambda tick: None, "selects nothing"),
        ({"tags": {"a": 1}}, lambda tick: None, "tags cannot be"),
        ({"catchup": 3}, lambda tick: None, "catchup cannot be 3"),
        ({"code_version": ""}, lambda tick: None, "code_version cannot be ''"),
        ({"name": "Nightly"}, lambda tick: None, "'Nightly' is not the name of a schedule"),
        ({}, lambda: None, "takes more or less than tick"),
        ({}, lambda tick, more: None, "takes more or less than tick"),
        ({}, "x", "is not a function"),
        ({}, _asynchronous, "is asynchronous"),
    ],
)
def test_refuses_schedules_that_cannot_be_meant(options: dict[str, Any], function: Any, said: str) -> None:
    given = {"name": "nightly", "cron": "0 6 * * *", "select": "x", **options}
    with pytest.raises(InvalidDefinition, match=said) as refused:
        schedule(**given)(function)
    assert "\n" not in str(refused.value)


def test_a_schedule_needs_partitions_or_a_function() -> None:
    with pytest.raises(InvalidInput, match="partitions cannot be None"):
        Schedule("nightly", cron="0 6 * * *", select="x", partitions=None)
    with pytest.raises(InvalidInput, match="tags cannot be"):
        Schedule("nightly", cron="0 6 * * *", select="x", tags={"a": 1})  # type: ignore[dict-item]


def test_an_asset_may_have_a_schedule(project: Project) -> None:
    found = project.loaded(
        """
        days = servo.Daily("date", start="2025-01-01", timezone="Europe/Berlin")

        @asset(partitions=servo.Static("region", ["eu"]) * days, schedule="0 6 * * *")
        def revenue(): ...

        @asset(name="events.daily", namespace="raw", schedule="5 * * * *")
        def events(): ...

        @asset(partitions=servo.Daily("date", start="2025-01-01"), schedule="1 1 1 1 *")
        def plain(): ...
        """
    )
    assert list(found.schedules) == ["revenue", "events_daily", "plain"]
    revenue, events, plain = found.schedules.values()
    assert (revenue.cron, revenue.timezone, revenue.select) == ("0 6 * * *", "Europe/Berlin", "shop/revenue")
    assert (revenue.partitions, revenue.enabled, revenue.overlap) == ("latest", True, "allow")
    assert str(revenue.source) == "definitions.py:7"
    assert (events.timezone, events.select) == ("UTC", "raw/events.daily")
    assert plain.timezone == "UTC"
    # When it runs says nothing about what it computes.
    before = found.assets["shop/plain"].spec
    assert (
        project.loaded(
            """
        @asset(partitions=servo.Daily("date", start="2025-01-01"))
        def plain(): ...
        """
        )
        .assets["shop/plain"]
        .spec.code_version
        == before.code_version
    )


def test_says_where_what_cannot_be_meant_stands(project: Project) -> None:
    found = project.problems(
        """
        @asset(schedule="0 25 * * *")
        def a(): ...

        @asset(schedule=5)
        def b(): ...

        @servo.schedule(cron="no", select="a")
        def c(tick): ...

        @servo.sensor(timeout=timedelta(0))
        def d(context): ...

        e = servo.on("landing", name="e", select="a")
        """
    )
    assert [one.split(" (")[0] for one in found] == [
        "definitions.py:5: asset a: schedule: '0 25 * * *' is not a cron: bad hour",
        "definitions.py:8: asset b: schedule: 5 is not a cron",
        "definitions.py:11: schedule c: 'no' is not a cron of five fields",
        "definitions.py:14: sensor d: timeout cannot be datetime.timedelta(0)",
        "definitions.py:17: sensor e: 'landing' cannot be watched",
    ]


def test_two_schedules_of_one_name_are_told_apart(project: Project) -> None:
    [said] = project.problems(
        """
        @asset(schedule="0 6 * * *")
        def a(): ...

        servo.Schedule("a", cron="0 6 * * *", select="a")
        """
    )
    assert said.startswith("definitions.py:8: schedule a is declared a second time; first at definitions.py:5")


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sensor_looks_every_thirty_seconds_unless_it_says_otherwise() -> None:
    @sensor
    def landing(context):
        """Looks."""

    assert (landing.name, landing.kind, landing.enabled, landing.description) == ("landing", "poll", True, "Looks.")
    assert (landing.min_interval, landing.timeout, landing.watch) == (timedelta(seconds=30), None, None)

    @sensor(name="other", kind="push", timeout=timedelta(seconds=5), min_interval=timedelta(seconds=9), enabled=False)
    def another(context): ...

    assert (another.name, another.kind, another.enabled) == ("other", "push", False)
    assert (another.timeout, another.min_interval) == (timedelta(seconds=5), timedelta(seconds=9))


def test_a_watch_says_how_often_to_look() -> None:
    watch = NewPartitions("orders")

    @sensor(watch=watch)
    def landed(context): ...

    assert (landed.watch, landed.min_interval) == (watch, timedelta(seconds=1))
    files = NewFiles("landing/{date}/*.json")
    by_itself = servo.on(files, name="by_itself", select="raw+", partitions="{date}")
    assert isinstance(by_itself, Sensor)
    assert (by_itself.function, by_itself.select, by_itself.partitions) == (None, "raw+", "{date}")
    assert (by_itself.kind, by_itself.min_interval, by_itself.source.file) == ("poll", timedelta(seconds=30), __file__)
    with pytest.raises(TypeError, match="by_itself has no function"):
        by_itself(None)
    moved = by_itself.at(landed.source)
    assert {**vars(moved), "source": None} == {**vars(by_itself), "source": None}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: sensor(kind="pull", name="x")(lambda context: None), "kind cannot be 'pull'"),
        (lambda: sensor(name="x", timeout=timedelta(0))(lambda context: None), "timeout cannot be"),
        (lambda: sensor(name="x", timeout=timedelta(days=2))(lambda context: None), "timeout cannot be"),
        (lambda: sensor(name="x", timeout=60)(lambda context: None), "timeout cannot be 60"),  # type: ignore[call-overload]
        (lambda: sensor(name="x", watch=NewFiles)(lambda context: None), "cannot be watched"),  # type: ignore[call-overload]
        (lambda: sensor(name="x", watch=NewFiles("a"), kind="push")(lambda context: None), "is sent messages"),
        (lambda: sensor(name="x")(_asynchronous), "is asynchronous"),
        (lambda: sensor(name="x", code_version="")(lambda context: None), "code_version"),
        (lambda: servo.on(None, name="x", select="a"), "neither a function nor a watch"),  # type: ignore[arg-type]
        (lambda: servo.on(NewFiles("a"), name="x", select=""), "selects nothing"),
        (lambda: servo.on(NewFiles("a"), name="X", select="a"), "is not the name of a sensor"),
        (lambda: servo.on(NewFiles("a"), name="x", select="a", partitions=["b"]), "partitions cannot be"),  # type: ignore[arg-type]
    ],
)
def test_refuses_sensors_that_cannot_be_meant(wrong: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidDefinition, match=said):
        wrong()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("servo.on(servo.NewFiles('l/*'), name='x', select='nowhere')", "there is no asset 'nowhere'"),
        ("servo.on(servo.NewFiles('l/*'), name='x', select='a and')", "a and"),
        ("servo.on(servo.NewFiles('l/{date}/*'), name='x', select='a', partitions='{day}')", "names 'day'"),
        ("servo.on(servo.NewPartitions('nowhere'), name='x', select='a')", "there is no asset 'nowhere'"),
        ("servo.sensor(name='x', watch=servo.NewPartitions('nowhere'))(print)", "there is no asset 'nowhere'"),
        ("servo.sensor(name='x', watch=servo.RunEnded(select='nowhere'))(f)", "there is no asset 'nowhere'"),
    ],
)
def test_what_sensors_speak_of_must_be_there(project: Project, line: str, said: str) -> None:
    line = line.replace("(print)", "(f)")
    [problem] = project.problems(f"@asset\ndef a(): ...\n\ndef f(context): ...\nx = {line}\n")
    assert problem.startswith("definitions.py:")
    assert "sensor x: " in problem
    assert said in problem


# ── what they are given, and ask for ─────────────────────────────────────────────────────────────────────────────


def test_run_requests() -> None:
    assert RunRequest(select="a").key is None
    assert RunRequest(select="a", partitions="2025-01-01").partitions == ("2025-01-01",)
    assert RunRequest(select="a", partitions=["x", "y"]).partitions == ("x", "y")
    assert RunRequest(key="k", select="a", tags={"a": "b"}).tags == {"a": "b"}


@pytest.mark.parametrize(
    "options",
    [
        {"select": ""},
        {"select": 5},
        {"select": "a", "key": ""},
        {"select": "a", "key": 5},
        {"select": "a", "partitions": 5},
        {"select": "a", "partitions": {"date": "x"}},
        {"select": "a", "partitions": b"x"},
        {"select": "a", "tags": {"a": 1}},
        {"select": "a", "tags": ["a"]},
    ],
)
def test_refuses_run_requests_that_cannot_be_meant(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        RunRequest(**options)


def test_messages() -> None:
    message = Message(id="1", data='{"day": "2025-01-01", "ü": 1}'.encode(), attributes={"a": "b"}, published_at=NOW)
    assert message.json() == {"day": "2025-01-01", "ü": 1}
    assert message.text().startswith('{"day"')
    with pytest.raises(InvalidInput, match="message '1' is not JSON"):
        Message(id="1", data=b"{").json()
    with pytest.raises(InvalidInput, match="not JSON"):
        Message(id="1").json()
    with pytest.raises(InvalidInput, match="not a text in UTF-8"):
        Message(id="1", data=b"\xff").text()


def test_a_context_takes_values_of_dynamic_dimensions() -> None:
    context = SensorContext(name="landing", now=NOW, cursor="1", dynamic=["customer"])
    context.add_partitions("customer", ["a", "b", "a"])
    context.add_partitions("customer", "c")
    assert context.added == {"customer": ["a", "b", "c"]}
    with pytest.raises(InvalidPartition, match="no asset has a dynamic dimension 'date'"):
        context.add_partitions("date", ["2025-01-01"])
    with pytest.raises(InvalidPartition, match="cannot have the value 5"):
        context.add_partitions("customer", [5])  # type: ignore[list-item]
    anywhere = SensorContext(name="landing", now=NOW)
    anywhere.add_partitions("whatever", ["a"])
    assert anywhere.added == {"whatever": ["a"]}


def test_the_reason_of_a_skip_is_one_line() -> None:
    assert Skip("a\n holiday").reason == "a holiday"
    assert Skip().reason == ""


# ── what is deployed ─────────────────────────────────────────────────────────────────────────────────────────────

DECLARED = """
    @asset(partitions=servo.Daily("date", start="2025-01-01"))
    def a(): ...

    @servo.sensor(timeout=timedelta(seconds=5))
    def looks(context):
        yield servo.RunRequest(key="a", select="a", partitions="2025-01-01")

    landed = servo.on(servo.NewFiles("l/{date}/*"), name="landed", select="a", partitions="{date}")

    @servo.schedule(cron="0 6 * * *", select="a")
    def nightly(tick):
        return "latest"

    plain = servo.Schedule("plain", cron="0 6 * * *", select="a")
"""


def deployed(found: Definitions) -> tuple[list[ScheduleDefinition], list[SensorDefinition]]:
    return (
        [schedule_of(one, one.name, 1, enabled=True) for one in found.schedules.values()],
        [sensor_of(one, one.name, 1, enabled=True) for one in found.sensors.values()],
    )


def test_what_the_ledger_keeps_of_them(project: Project) -> None:
    schedules, sensors = deployed(project.loaded(DECLARED))
    nightly, plain = (one.settings for one in schedules)
    assert {**nightly, "code_version": "…"} == {
        "declared": {"enabled": True},
        "partitions": None,
        "function": True,
        "code_version": "…",
        "tags": {},
        "source": {"file": "definitions.py", "line": 14},
    }
    assert plain == {
        "declared": {"enabled": True},
        "partitions": "latest",
        "tags": {},
        "source": {"file": "definitions.py", "line": 18},
    }
    looks, landed = (one.settings for one in sensors)
    assert {**looks, "code_version": "…"} == {
        "declared": {"enabled": True},
        "description": None,
        "source": {"file": "definitions.py", "line": 8},
        "code_version": "…",
        "timeout_seconds": 5,
    }
    assert landed == {
        "declared": {"enabled": True},
        "description": None,
        "source": {"file": "definitions.py", "line": 12},
        "watch": NewFiles("l/{date}/*").to_json(),
        "select": "a",
        "partitions": "{date}",
    }


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("@asset", "# lines move\n\n    @asset", False),
        ('key="a"', "key='a'", False),
        ("def looks(context):\n", 'def looks(context):\n        # a word\n', False),
        ('key="a"', 'key="b"', True),
        ('return "latest"', 'return "2025-01-01"', True),
        ("l/{date}/*", "m/{date}/*", True),
        ("seconds=5", "seconds=6", True),
        ('partitions="{date}"', 'partitions="{date}|latest"', True),
    ],
)  # fmt: skip
def test_an_edited_function_is_a_new_deployment(project: Project, old: str, new: str, changes: bool) -> None:
    before = fingerprint([], *deployed(project.loaded(DECLARED)))
    assert old in DECLARED
    after = fingerprint([], *deployed(project.loaded(DECLARED.replace(old, new))))
    assert (before != after) == changes
