"""`servo schedule …` and `servo tick`, as somebody types them."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from tests.acceptance.support import Folder
from tests.acceptance.test_backfill_input import on_a_terminal
from tests.acceptance.test_program import HEAVY, imported

DEFINITIONS = """
import servo
from servo import Daily, Static, asset

days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")

@asset(partitions=days)
def orders(context): ...

@asset(partitions=days * Static("region", ["eu", "us"]))
def revenue(orders): ...

@asset
def whole(context): ...

nightly = servo.Schedule("nightly", cron="30 2 * * *", timezone="Europe/Berlin", select="+revenue")
often = servo.Schedule("often", cron="* * * * *", select="whole", overlap="skip", enabled=False)
"""
WEEKLY = ("weekly", "--cron", "0 6 * * mon", "--select", "orders", "--timezone", "Europe/Berlin")


def make(path: Path) -> Folder:
    (path / "servo.toml").write_text('namespace = "shop"\n')
    (path / "definitions.py").write_text(DEFINITIONS)
    return Folder(path)


@pytest.fixture
def shop(tmp_path: Path) -> Folder:
    return make(tmp_path)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with a schedule that a person made; nothing works on it. For who only looks, or is refused."""
    folder = make(tmp_path_factory.mktemp("begun"))
    folder.json("schedule", "create", *WEEKLY)
    folder.json("schedule", "pause", "nightly")
    folder.json("schedule", "resume", "nightly")
    return folder


def head(folder: Folder) -> int:
    with sqlite3.connect(folder.path / ".servo" / "ledger.db") as database:
        [(position,)] = database.execute("SELECT max(position) FROM events").fetchall()
    database.close()
    return int(position)


def rows(text: str) -> list[dict[str, str]]:
    names, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(names, line, strict=True)) for line in lines]


# ── looking, before there is anything ────────────────────────────────────────────────────────────────────────────


def test_what_the_folder_declares_is_shown_before_it_is_deployed_and_nothing_is_written(shop: Folder) -> None:
    before = shop.files()
    listed = {row["name"]: row["state"] for row in rows(shop.ok("schedule", "list"))}
    assert listed == {"nightly": "new", "often": "paused"}
    shown = shop.json("schedule", "show", "nightly")
    assert (shown["deployed"], shown["declared"], shown["source"]) == (False, True, "definitions.py:16")
    ahead = shop.json("schedule", "next", "--days", "3", "--from", "2026-03-28")
    assert [tick["name"] for tick in ahead["ticks"]] == ["nightly"] * 3
    assert shop.json("schedule", "ticks", "nightly")["ticks"] == []
    assert shop.files() == before


def test_the_days_to_come_say_what_the_clocks_do(shop: Folder) -> None:
    asked = ("schedule", "next", "nightly", "--days", "2", "--from", "2026-03-28")
    told = rows(shop.ok(*asked))
    assert [(row["local time"], row["utc"], row["remark"]) for row in told] == [
        ("2026-03-28T02:30:00+01:00", "2026-03-28T01:30:00Z", ""),
        ("2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00Z", "02:30 does not exist, fires at 03:00"),
    ]
    assert told[0]["partitions"] == "shop/orders 2026-03-27; shop/revenue 2026-03-27 × eu, us"
    assert told[0]["count"] == "3"
    code, lines = on_a_terminal(shop, *asked)
    assert code == 0
    assert any("Sun 29 Mar 03:00 CEST nightly: 02:30 does not exist, fires at 03:00" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)
    done = shop.servo("schedule", "next", "often", "--days", "0.01")
    assert done.returncode == 0
    assert done.stderr == "servo: warning: often is paused: its ticks would be skipped\n"


def test_functions_of_schedules_are_asked_what_they_would_fill(shop: Folder) -> None:
    source = shop.path / "definitions.py"
    source.write_text(
        source.read_text()
        + """
@servo.schedule(cron="0 8 * * *", select="orders")
def chosen(tick):
    if tick.scheduled_for.day == 29:
        raise servo.Skip("a holiday")
    return ["2025-01-01", f"2025-02-01..2025-02-{tick.scheduled_for.day - 20:02d}"]

@servo.schedule(cron="0 8 * * *", select="orders")
def broken(tick):
    raise ValueError("no idea")
"""
    )
    ahead = shop.json("schedule", "next", "chosen", "--days", "2", "--from", "2026-03-28")
    first, second = ahead["ticks"]
    assert (first["by_function"], first["fills"][0]["count"], first["skip"]) == (True, 9, None)
    assert (second["fills"], second["skip"], second["problem"]) == ([], "a holiday", None)
    ahead = shop.json("schedule", "next", "broken", "--days", "2", "--from", "2026-03-28")
    assert ["no idea" in tick["problem"] for tick in ahead["ticks"]] == [True, True]


def test_a_timeline_is_drawn_where_there_is_more_than_one_schedule(begun: Folder) -> None:
    code, lines = on_a_terminal(begun, "schedule", "next", "--days", "7")
    assert code == 0
    assert all(len(line) <= 80 for line in lines)
    [nightly] = [line for line in lines if re.match(r"nightly +[·●]+$", line)]
    assert nightly.count("●") == 7
    [weekly] = [line for line in lines if re.match(r"weekly +[·●]+$", line)]
    assert weekly.count("●") == 1


# ── making, editing, switching ───────────────────────────────────────────────────────────────────────────────────


def test_the_life_of_a_schedule(shop: Folder) -> None:
    made = shop.json("schedule", "create", *WEEKLY, "--request-id", "r1", "--tag", "team=sales")
    assert (made["name"], made["version"], made["duplicate"]) == ("weekly", 1, False)
    again = shop.json("schedule", "create", *WEEKLY, "--request-id", "r1", "--tag", "team=sales")
    assert (again["schedule_id"], again["duplicate"]) == (made["schedule_id"], True)
    assert "used for another request" in shop.fails(4, "schedule", "create", *WEEKLY, "--request-id", "r1")
    shown = shop.json("schedule", "show", "weekly")
    assert (shown["cron"], shown["timezone"], shown["select"]) == ("0 6 * * mon", "Europe/Berlin", ["orders"])
    assert (shown["tags"], shown["partitions"], shown["enabled"]) == ({"team": "sales"}, "latest", True)
    said = shop.ok("schedule", "update", "weekly", "--cron", "0 7 * * mon", "--overlap", "skip")
    assert said == "✓ weekly has a new cron and overlap, version 2\n"
    assert shop.json("schedule", "show", "weekly")["clock_since"] is not None
    assert shop.ok("schedule", "update", "weekly", "--overlap", "skip") == "✓ weekly is so already, version 2\n"
    assert shop.ok("schedule", "pause", "weekly").startswith("✓ weekly is paused, version 3\n")
    assert shop.json("schedule", "pause", "weekly")["duplicate"] is True
    refused = shop.fails(4, "schedule", "resume", "weekly", "--expected-version", "1")
    assert "weekly is at version 3, not at 1 as expected" in refused
    assert shop.json("schedule", "resume", "weekly", "--expected-version", "3")["version"] == 4
    assert shop.json("schedule", "delete", "weekly", "--reason", "done with it")["version"] == 5
    assert "there is no schedule 'weekly'" in shop.fails(3, "schedule", "show", "weekly")


def test_what_is_declared_is_deployed_when_it_is_switched(shop: Folder) -> None:
    done = shop.json("schedule", "resume", "often")
    assert (done["enabled"], done["version"]) == (True, 2)
    listed = {one["name"]: one for one in shop.json("schedule", "list")["schedules"]}
    assert (listed["often"]["enabled"], listed["often"]["deployed"]) == (True, True)
    assert listed["often"]["schedule_id"] == done["schedule_id"]


def test_a_folder_that_does_not_load_stops_nobody_from_pausing(shop: Folder) -> None:
    shop.json("schedule", "resume", "often")
    (shop.path / "definitions.py").write_text("nonsense(")
    assert shop.ok("schedule", "pause", "often").startswith("✓ often is paused, version 3\n")
    done = shop.servo("schedule", "list")
    assert done.returncode == 0
    assert {row["name"]: row["state"] for row in rows(done.stdout)} == {"nightly": "on", "often": "paused"}
    assert done.stderr.startswith("servo: warning: shown as deployed, for the folder does not load: ")
    assert "definitions.py" in shop.fails(2, "schedule", "trigger", "often")


def test_switching_deploys_nothing_else(shop: Folder) -> None:
    shop.json("schedule", "resume", "often")
    before = head(shop)
    source = shop.path / "definitions.py"
    source.write_text(source.read_text().replace("30 2", "45 2"))
    shop.json("schedule", "pause", "nightly")
    assert head(shop) == before + 1


def test_a_trigger_ticks_now_and_the_same_request_is_the_same_tick(shop: Folder) -> None:
    first = shop.json("schedule", "trigger", "nightly", "--request-id", "r1", "--at", "2026-03-29T01:00")
    assert (first["status"], first["partitions"], first["duplicate"]) == ("TRIGGERED", 3, False)
    assert first["run_key"] == f"sched:{first['schedule_id']}:manual:r1"
    again = shop.json("schedule", "trigger", "nightly", "--request-id", "r1", "--at", "2026-03-29T01:00")
    assert (again["run_id"], again["duplicate"]) == (first["run_id"], True)
    assert "another request" in shop.fails(4, "schedule", "trigger", "nightly", "--request-id", "r1")
    [tick] = shop.json("schedule", "ticks", "nightly")["ticks"]
    assert (tick["manual"], tick["run_id"], tick["run_status"]) == (True, first["run_id"], "REQUESTED")
    assert [(fill["asset_key"], fill["partitions"]) for fill in tick["fills"]] == [
        ("shop/orders", "2026-03-28"),
        ("shop/revenue", "2026-03-28 × eu, us"),
    ]
    # A tick by hand does not move the schedule's clock.
    assert shop.json("schedule", "show", "nightly")["last_scheduled_for"] is None
    [row] = rows(shop.ok("schedule", "ticks", "nightly"))
    assert (row["status"], row["by"], row["partitions"]) == (
        "TRIGGERED",
        "manual",
        "orders 2026-03-28; revenue 2026-03-28 × eu, us",
    )
    code, lines = on_a_terminal(shop, "schedule", "ticks", "nightly")
    assert code == 0
    assert all(len(line) <= 80 for line in lines)


def test_one_pass_ticks_what_is_due_once(shop: Folder) -> None:
    shop.json("schedule", "resume", "often")
    first = shop.json("tick")
    assert set(first) == {"ticks", "skipped", "failed", "evaluations", "runs", "next_due"}
    assert first["ticks"] == 0  # it was made just now, and never ticks for the past


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────

CRON, SELECT = ("--cron", "0 6 * * *"), ("--select", "orders")
BAD: dict[str, tuple[int, tuple[str, ...], str]] = {
    "four fields": (2, ("create", "x", "--cron", "0 6 * *", *SELECT), "not a cron"),
    "minute 99": (2, ("create", "x", "--cron", "99 6 * * *", *SELECT), "not a cron"),
    "never fires": (2, ("create", "x", "--cron", "0 0 31 2 *", *SELECT), "cron"),
    "no cron": (2, ("create", "x", *SELECT), "--cron"),
    "no zone": (2, ("create", "x", *CRON, *SELECT, "--timezone", "Europe/Berln"), "Europe/Berln"),
    "zone of dots": (2, ("create", "x", *CRON, *SELECT, "--timezone", "../x"), "timezone"),
    "no asset": (3, ("create", "x", *CRON, "--select", "ordres"), "ordres"),
    "no selection": (2, ("create", "x", *CRON), "--select"),
    "half a selection": (2, ("create", "x", *CRON, "--select", "orders and"), ""),
    "no partitions": (2, ("create", "x", *CRON, *SELECT, "--partitions", "someday"), "someday"),
    "bad name": (2, ("create", "No Name", *CRON, *SELECT), "No Name"),
    "taken name": (4, ("create", *WEEKLY), "there is a schedule weekly already"),
    "declared name": (4, ("create", "nightly", *CRON, *SELECT), "declared by code at definitions.py:16"),
    "bad overlap": (2, ("create", "x", *CRON, *SELECT, "--overlap", "maybe"), "--overlap"),
    "negative window": (2, ("create", "x", *CRON, *SELECT, "--catchup-window", "-1"), "catchup_window_minutes"),
    "no ticks": (2, ("create", "x", *CRON, *SELECT, "--max-catchup", "0"), "max_catchup_ticks"),
    "huge window": (2, ("create", "x", *CRON, *SELECT, "--catchup-window", "9" * 30), "catchup_window_minutes"),
    "half a tag": (2, ("create", "x", *CRON, *SELECT, "--tag", "team"), "key=value"),
    "Servo's tag": (2, ("create", "x", *CRON, *SELECT, "--tag", "servo.queue=x"), "servo.queue"),
    "update of nothing": (2, ("update", "weekly"), "Nothing is to be changed"),
    "update to a bad cron": (2, ("update", "weekly", "--cron", "x"), "not a cron"),
    "update to no asset": (3, ("update", "weekly", "--select", "ordres"), "ordres"),
    "update of code": (2, ("update", "nightly", *CRON), "declared by code at definitions.py:16"),
    "deletion of code": (2, ("delete", "nightly"), "declared by code at definitions.py:16"),
    "wrong version": (4, ("update", "weekly", *CRON, "--expected-version", "9"), "at version 1, not at 9"),
    "pause of nobody": (3, ("pause", "nobody"), "no schedule 'nobody'"),
    "resume of nobody": (3, ("resume", "nobody"), "no schedule 'nobody'"),
    "update of nobody": (3, ("update", "nobody", *CRON), "no schedule 'nobody'"),
    "deletion of nobody": (3, ("delete", "nobody"), "no schedule 'nobody'"),
    "trigger of nobody": (3, ("trigger", "nobody"), "no schedule 'nobody'"),
    "trigger at no time": (2, ("trigger", "weekly", "--at", "noon"), "--at"),
    "ticks of nobody": (3, ("ticks", "nobody"), "no schedule 'nobody'"),
    "ticks before rubbish": (2, ("ticks", "weekly", "--before", "x"), "event id"),
    "show of nobody": (3, ("show", "weekl"), "did you mean weekly?"),
    "no days ahead": (2, ("next", "--days", "0"), "days must be more than 0"),
    "no number of days": (2, ("next", "--days", "nan"), "days must be more than 0"),
    "next of nobody": (3, ("next", "nobody"), "no schedule 'nobody'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused_is_one_line_and_leaves_nothing(begun: Folder, case: str) -> None:
    code, arguments, words = BAD[case]
    before = head(begun)
    assert words in begun.fails(code, "schedule", *arguments)
    assert head(begun) == before


def test_a_refusal_in_json_is_one_object(begun: Folder) -> None:
    done = begun.servo("schedule", "show", "nobody", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert json.loads(done.stderr)["error"]["code"] == "schedule-not-found"


def test_what_is_refused_makes_no_ledger(shop: Folder) -> None:
    before = shop.files()
    shop.fails(2, "schedule", "create", "x", "--cron", "x", "--select", "orders")
    shop.fails(3, "schedule", "pause", "nobody")
    shop.fails(3, "schedule", "trigger", "nobody")
    shop.fails(3, "schedule", "delete", "nobody")
    assert shop.files() == before


# ── how it looks, and how light it is ────────────────────────────────────────────────────────────────────────────


def test_everything_fits_a_terminal(begun: Folder) -> None:
    for command in (["list"], ["show", "weekly"], ["ticks", "weekly"], ["next", "weekly"]):
        code, lines = on_a_terminal(begun, "schedule", *command)
        assert code == 0
        assert lines
        assert all(len(line) <= 80 for line in lines), lines
    code, lines = on_a_terminal(begun, "schedule", "list")
    assert any(re.match(r"on +weekly +0 6 \* \* mon Europe/Berlin", line) for line in lines), lines


def test_help_is_light(begun: Folder) -> None:
    # What a command asks for is a struct, so msgspec comes with the commands of a noun; nothing that answers it does.
    for command in (["schedule", "--help"], ["schedule", "create", "--help"], ["sensor", "--help"], ["tick", "--help"]):
        assert not imported(begun, *command) & (HEAVY - {"msgspec"})


def test_looking_needs_no_spark(begun: Folder) -> None:
    for command in (["list"], ["show", "weekly"], ["next"]):
        assert not imported(begun, "schedule", *command) & {"pyspark", "py4j"}


def test_names_complete(begun: Folder) -> None:
    asked = {"_SERVO_COMPLETE": "bash_complete", "COMP_WORDS": "servo schedule show we", "COMP_CWORD": "3"}
    folder = Folder(begun.path, variables=asked)
    assert folder.ok() == "plain,weekly\n"
