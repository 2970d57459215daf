"""`servo sensor …` and `servo run conflicts`, as somebody types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.support import Folder
from tests.acceptance.test_backfill_input import on_a_terminal
from tests.acceptance.test_schedule_commands import head, rows

DEFINITIONS = '''
from datetime import timedelta
import servo
from servo import Daily, asset

@asset(partitions=Daily("date", start="2025-01-01"))
def orders(context): ...

@asset(partitions=Daily("date", start="2025-01-01"))
def totals(orders): ...

@servo.sensor(min_interval=timedelta(seconds=30))
def landing(context):
    """Looks for the next day."""
    day = 1 if context.cursor is None else int(context.cursor) + 1
    context.cursor = str(day)
    yield servo.RunRequest(key=f"day-{day}", select="orders", partitions=[f"2025-01-{day:02d}"])

@servo.sensor(kind="push")
def uploads(context):
    said = context.message.json()
    yield servo.RunRequest(key=said.get("key"), select="orders", partitions=[said["day"]])

watched = servo.on(servo.NewPartitions("orders"), name="watched", select="totals")
'''


def make(path: Path) -> Folder:
    (path / "servo.toml").write_text('namespace = "shop"\n')
    (path / "definitions.py").write_text(DEFINITIONS)
    return Folder(path)


@pytest.fixture
def shop(tmp_path: Path) -> Folder:
    return make(tmp_path)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with one message. For who only looks, or is refused."""
    folder = make(tmp_path_factory.mktemp("begun"))
    folder.json("sensor", "send", "uploads", "--data", '{"day": "2025-01-03"}', "--message-id", "m1")
    (folder.path / "large.json").write_bytes(b"x" * (256 * 1024 + 1))
    return folder


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_folder_declares_is_shown_before_it_is_deployed_and_nothing_is_written(shop: Folder) -> None:
    before = shop.files()
    listed = {row["name"]: (row["state"], row["kind"]) for row in rows(shop.ok("sensor", "list"))}
    assert listed["landing"] == ("new", "poll, 30 s")
    assert listed["uploads"] == ("new", "push")
    shown = shop.json("sensor", "show", "landing")
    assert (shown["deployed"], shown["cursor"], shown["description"]) == (False, None, "Looks for the next day.")
    assert shop.json("sensor", "evals", "landing")["evals"] == []
    assert shop.files() == before


def test_everything_fits_a_terminal(begun: Folder) -> None:
    for command in (["list"], ["show", "landing"], ["show", "watched"], ["evals", "uploads"]):
        code, lines = on_a_terminal(begun, "sensor", *command)
        assert code == 0
        assert lines
        assert all(len(line) <= 80 for line in lines), lines


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_is_evaluated_once_however_often_it_is_sent(shop: Folder) -> None:
    sent = ("sensor", "send", "uploads", "--data", '{"day": "2025-01-03"}', "--message-id", "m1")
    first = shop.json(*sent)
    assert (first["status"], first["duplicate"], len(first["run_ids"])) == ("TRIGGERED", False, 1)
    assert first["run_keys"] == [f"sensor:{first['sensor_id']}:msg:m1"]
    before = head(shop)
    again = shop.json(*sent)
    assert (again["run_ids"], again["event_id"], again["duplicate"]) == (first["run_ids"], first["event_id"], True)
    assert head(shop) == before
    other = shop.json("sensor", "send", "uploads", "--data", '{"day": "2025-01-03"}')  # an id is made up
    assert (other["duplicate"], other["run_ids"] != first["run_ids"]) == (False, True)
    [mine, one] = shop.json("sensor", "evals", "uploads")["evals"]
    assert [each["runs"][0]["outcome"] for each in (mine, one)] == ["started", "started"]
    assert one["message_id"] == "m1"


def test_a_sensor_is_made_and_deleted_without_code(shop: Folder) -> None:
    made = shop.json("sensor", "create", "told", "--messages", "--select", "orders", "--partitions", "{day}")
    assert (made["name"], made["version"], made["enabled"]) == ("told", 1, True)
    sent = shop.json("sensor", "send", "told", "--data", '{"day": "2025-01-03"}')
    assert (sent["status"], len(sent["run_ids"])) == ("TRIGGERED", 1)
    files = ["--files", "landing/{date}/*.json", "--select", "orders", "--request-id", "r1"]
    first, again = shop.json("sensor", "create", "landed", *files), shop.json("sensor", "create", "landed", *files)
    assert (first["sensor_id"], again["duplicate"]) == (again["sensor_id"], True)
    assert shop.json("sensor", "delete", "told")["version"] == 2
    names = [one["name"] for one in shop.json("sensor", "list")["sensors"]]
    assert names == ["landed", "landing", "uploads", "watched"]
    assert "declared by code" in shop.fails(2, "sensor", "delete", "landing")
    assert "one of --files" in shop.fails(2, "sensor", "create", "x", "--select", "orders")


def test_a_message_may_come_from_a_file_or_a_pipe(shop: Folder) -> None:
    (shop.path / "message.json").write_text('{"day": "2025-01-04"}')
    sent = shop.json("sensor", "send", "uploads", "--file", "message.json", "--attribute", "from=test")
    assert sent["status"] == "TRIGGERED"
    done = subprocess.run(
        [sys.executable, "-m", "servo", "sensor", "send", "uploads", "--file", "-", "--json"],
        cwd=shop.path,
        env=shop.environment(),
        input='{"day": "2025-01-05"}',
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["status"] == "TRIGGERED"


def test_a_message_that_the_sensor_fails_on_is_kept_and_the_exit_code_says_so(shop: Folder) -> None:
    done = shop.servo("sensor", "send", "uploads", "--data", "nonsense", "--message-id", "m2")
    assert done.returncode == 1
    assert done.stdout.startswith("FAILED ")
    [one] = shop.json("sensor", "evals", "uploads", "--status", "FAILED")["evals"]
    assert (one["message_id"], one["message_kept"]) == ("m2", True)
    assert "not JSON" in one["reason"]


def test_a_message_that_came_while_paused_is_evaluated_later_by_hand(shop: Folder) -> None:
    assert shop.ok("sensor", "pause", "uploads").startswith("✓ uploads is paused, version 2\n")
    sent = shop.json("sensor", "send", "uploads", "--data", '{"day": "2025-01-03"}', "--message-id", "m3")
    assert (sent["status"], sent["reason"], sent["run_ids"]) == ("SKIPPED", "paused", [])
    shop.json("sensor", "resume", "uploads")
    done = shop.json("sensor", "evaluate", "uploads", "--message-id", "m3")
    assert (done["status"], done["run_keys"]) == ("TRIGGERED", [f"sensor:{done['sensor_id']}:msg:m3"])
    assert "no message 'm9'" in shop.fails(3, "sensor", "evaluate", "uploads", "--message-id", "m9")


# ── evaluating by hand, and cursors ──────────────────────────────────────────────────────────────────────────────


def test_a_trial_writes_nothing_and_moves_no_cursor(shop: Folder) -> None:
    shop.json("sensor", "pause", "watched")  # to have it deployed
    before = head(shop)
    tried = shop.json("sensor", "evaluate", "landing", "--dry-run")
    assert (tried["status"], tried["event_id"]) == ("TRIGGERED", None)
    assert tried["run_keys"] == [f"sensor:{tried['sensor_id']}:day-1"]
    assert head(shop) == before
    done = shop.json("sensor", "evaluate", "landing", "--request-id", "r1")
    assert done["run_keys"] == tried["run_keys"]
    again = shop.json("sensor", "evaluate", "landing", "--request-id", "r1")
    assert (again["event_id"], again["duplicate"]) == (done["event_id"], True)
    assert shop.json("sensor", "show", "landing")["cursor"] is None


def test_a_pass_polls_and_moves_the_cursor_and_it_can_be_set_back(shop: Folder) -> None:
    report = shop.json("tick")
    assert report["evaluations"] >= 1
    shown = shop.json("sensor", "show", "landing")
    assert (shown["cursor"], shown["state_version"], shown["last_status"]) == ("1", 1, "TRIGGERED")
    done = shop.json("sensor", "reset-cursor", "landing", "--to", "7", "--reason", "skip a week")
    assert (done["cursor"], done["cursor_before"], done["state_version"]) == ("7", "1", 2)
    refused = shop.fails(4, "sensor", "reset-cursor", "landing", "--expected-state-version", "1")
    assert "landing is at state version 2, not at 1 as expected" in refused
    assert shop.ok("sensor", "reset-cursor", "landing").startswith("✓ landing goes on from the beginning")


def test_a_run_key_that_was_asked_for_before_is_the_same_run(shop: Folder) -> None:
    data = json.dumps({"key": "k", "day": "2025-01-03"})
    first = shop.json("sensor", "send", "uploads", "--data", data, "--message-id", "m1")
    again = shop.json("sensor", "send", "uploads", "--data", data, "--message-id", "m2")
    assert (again["duplicate"], again["run_ids"]) == (False, first["run_ids"])
    [second, _] = shop.json("sensor", "evals", "uploads")["evals"]
    assert [(run["outcome"], run["first_by"]) for run in second["runs"]] == [("duplicate", first["eval_id"])]
    assert len(shop.json("run", "list")["runs"]) == 1
    assert shop.json("run", "conflicts") == {"conflicts": []}


def test_a_run_key_that_is_another_runs_is_listed_as_a_conflict(shop: Folder) -> None:
    def send(message: str, day: str) -> None:
        shop.json("sensor", "send", "uploads", "--data", json.dumps({"key": "k", "day": day}), "--message-id", message)

    send("m1", "2025-01-03")
    send("m2", "2025-01-04")
    second, first = shop.json("sensor", "evals", "uploads")["evals"]
    assert [run["outcome"] for run in first["runs"]] == ["started"]
    assert [(run["outcome"], run["first_by"]) for run in second["runs"]] == [("conflict", first["eval_id"])]
    [conflict] = shop.json("run", "conflicts")["conflicts"]
    assert conflict["run_key"] == first["runs"][0]["run_key"]
    assert (conflict["run_id"], conflict["source_kind"]) == (first["runs"][0]["run_id"], "sensor")
    [row] = rows(shop.ok("run", "conflicts"))
    assert row["run key"] == conflict["run_key"]
    assert shop.json("run", "conflicts", "--run-key", "other") == {"conflicts": []}
    code, lines = on_a_terminal(shop, "sensor", "evals", "uploads")
    assert code == 0
    assert any("conflict" in line and "1 conflict" not in line for line in lines), lines


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────

BAD: dict[str, tuple[int, tuple[str, ...], str]] = {
    "show of nobody": (3, ("show", "landin"), "did you mean landing?"),
    "evals of nobody": (3, ("evals", "nobody"), "no sensor 'nobody'"),
    "evals before rubbish": (2, ("evals", "landing", "--before", "x"), "event id"),
    "evals of no status": (2, ("evals", "landing", "--status", "maybe"), "--status"),
    "pause of nobody": (3, ("pause", "nobody"), "no sensor 'nobody'"),
    "wrong version": (4, ("pause", "landing", "--expected-version", "9"), "at version 1, not at 9"),
    "cursor of nobody": (3, ("reset-cursor", "nobody", "--to", "x"), "no sensor 'nobody'"),
    "cursor of a push sensor": (2, ("reset-cursor", "uploads", "--to", "x"), "has no cursor"),
    "cursor of the wrong type": (2, ("reset-cursor", "watched", "--to", "tomorrow"), "tomorrow"),
    "cursor that is too long": (2, ("reset-cursor", "landing", "--to", "x" * 70_000), "64 KB"),
    "message to nobody": (3, ("send", "nobody", "--data", "x"), "no sensor 'nobody'"),
    "message to a poll sensor": (2, ("send", "landing", "--data", "x"), "takes no messages"),
    "message that says nothing": (2, ("send", "uploads"), "--data or --file"),
    "message that says two things": (2, ("send", "uploads", "--data", "x", "--file", "y"), "not both"),
    "message from no file": (2, ("send", "uploads", "--file", "no-such-file"), "no-such-file"),
    "half an attribute": (2, ("send", "uploads", "--data", "x", "--attribute", "a"), "key=value"),
    "empty message id": (2, ("send", "uploads", "--data", "x", "--message-id", ""), "known by its id"),
    "message that is too large": (2, ("send", "uploads", "--file", "large.json"), "262,145 bytes"),
    "evaluation of nobody": (3, ("evaluate", "nobody"), "no sensor 'nobody'"),
    "evaluation of no message": (2, ("evaluate", "uploads"), "nothing to evaluate"),
    "evaluation of a message that was answered": (4, ("evaluate", "uploads", "--message-id", "m1"), "was answered"),
    "sample and message": (2, ("evaluate", "uploads", "--data", "x", "--message-id", "m"), "--data or --message-id"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused_is_one_line_and_leaves_nothing(begun: Folder, case: str) -> None:
    code, arguments, words = BAD[case]
    before = head(begun)
    assert words in begun.fails(code, "sensor", *arguments)
    assert head(begun) == before


def test_what_is_refused_makes_no_ledger(shop: Folder) -> None:
    before = shop.files()
    shop.fails(3, "sensor", "pause", "nobody")
    shop.fails(3, "sensor", "send", "nobody", "--data", "x")
    shop.fails(2, "sensor", "send", "uploads")
    assert shop.files() == before


def test_a_message_that_is_too_large_is_refused_before_the_definitions_take_effect(shop: Folder) -> None:
    (shop.path / "large.json").write_bytes(b"x" * (256 * 1024 + 1))
    assert "data" in shop.fails(2, "sensor", "send", "uploads", "--file", "large.json")
    assert shop.json("deploy")["changed"] is True


def test_names_complete(begun: Folder) -> None:
    asked = {"_SERVO_COMPLETE": "bash_complete", "COMP_WORDS": "servo sensor show la", "COMP_CWORD": "3"}
    assert Folder(begun.path, variables=asked).ok() == "plain,landing\n"
