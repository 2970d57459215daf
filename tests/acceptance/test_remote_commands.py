"""Commands with SERVO_URL, from a folder that holds nothing: what they say is what they say in the project's own.

Both are called as the program does, but in this process; that a process of its own does the same has a few tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servo import Client
from servo.cli import main
from servo.runtime.worker.task_log import TaskLog
from tests.support import commands
from tests.support.operation_examples import QUESTIONS
from tests.support.questions import Data
from tests.support.served import SHOP, House, house

DAY = "2025-01-08"
_CHANGES_BY_ITSELF = ("next_at", "now", "generated_at", "report_hash")  # which follow from the time of day

DEFINITIONS = (
    SHOP
    + """

from servo import Dynamic

files = servo.on(servo.NewFiles("landing/{date}/*.json"), name="files", select="orders", partitions="{date}")

@asset(partitions=Dynamic("customer"))
def accounts(context): ...


@servo.schedule(cron="0 7 * * *", select="orders")
def by_function(tick):
    return f"2025-01-{tick.scheduled_for.day + 4:02d}"
"""
)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[Any]:
        if self.out.startswith("{\n"):
            return [json.loads(self.out)]
        return [json.loads(line) for line in self.out.splitlines()]


class Place(NamedTuple):
    shop: House
    folder: Path
    elsewhere: Path
    run_id: str
    checkpoint_id: str

    def named(self, command: list[str]) -> list[str]:
        return [{"RUN": self.run_id, "CHECKPOINT": self.checkpoint_id}.get(word, word) for word in command]


class Asking:
    """Calls commands, at home or from elsewhere."""

    def __init__(self, place: Place, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.place, self._patch, self._captured = place, patch, captured

    def at_home(self, *command: str) -> Said:
        return self._called(self.place.folder, None, command)

    def remotely(self, *command: str) -> Said:
        return self._called(self.place.elsewhere, self.place.shop.served.url, command)

    def done(self, *command: str) -> Any:
        told = self.remotely(*command, "--json")
        assert told.code == 0, told.err
        return json.loads(told.out)

    def home(self, *command: str) -> Any:
        told = self.at_home(*command, "--json")
        assert told.code == 0, told.err
        return json.loads(told.out)

    def _called(self, folder: Path, url: str | None, command: tuple[str, ...]) -> Said:
        for name in [name for name in os.environ if name.startswith("SERVO_")]:
            self._patch.delenv(name)
        if url is not None:
            self._patch.setenv("SERVO_URL", url)
        self._patch.chdir(folder)
        self._captured.readouterr()
        code = main.run(list(self.place.named(list(command))))
        out, err = self._captured.readouterr()
        return Said(code, out, err)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, elsewhere = tmp_path_factory.mktemp("shop"), tmp_path_factory.mktemp("elsewhere")
    with house(folder, DEFINITIONS) as shop:
        shop.post("/dimensions/customer/values", {"added": ["acme", "umbrella"]})
        run_id = shop.made("orders", "revenue", partitions=DAY)
        shop.made("totals")
        shop.made("filing", partitions="2025-01-01")
        shop.post("/backfills", {"assets": ["orders"], "partitions": "2025-01-01..2025-01-03", "name": "history"})
        shop.workshop.ended("history")
        shop.post("/schedules/nightly/trigger", {"at": "2025-01-10T06:00:00Z"})
        shop.post("/sensors/landing/evaluate")
        shop.post("/lineage/invalidate", {"asset": "orders", "partitions": [DAY], "reason": "corrected"})
        shop.post(
            "/partitions/mark",
            {"asset": "orders", "partitions": ["2025-01-12"], "mark": "frozen", "reason": "audited"},
        )
        (waiting,) = shop.items("/checkpoints")
        ended = ("SUCCEEDED", "FAILED", "CANCELLED")
        shop.workshop.until(
            lambda: sum(run["status"] not in ended for run in shop.items("/runs")) == 1, "all but one has ended"
        )
        for task in ("shop/orders", "shop/revenue"):
            TaskLog.open(shop.project.settings, run_id, task, 1).write("computed")
        _written(shop, "orders", [{"n": number, "when": "2025-01-08T00:00:00"} for number in range(25)])
        yield Place(shop, folder, elsewhere, run_id, waiting["checkpoint_id"])


def _written(shop: House, asset: str, rows: list[dict[str, Any]]) -> None:
    """Files for what was published, as nobody has computed anything."""
    places, _ = Data(shop.project).places(asset)
    storage = Path(shop.project.settings.storage)
    for one in places:
        folder = shop.project.storage._folder(one)
        (storage / folder).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), storage / folder / "part-0.parquet")


@pytest.fixture
def asking(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asking:
    return Asking(place, monkeypatch, capsys)


def timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in _CHANGES_BY_ITSELF}
    return value


# With options that the examples of operations (tests/support/operation_examples.py) leave out.
READS = [
    ["run", "list", "--status", "succeeded", "--limit", "2"],
    ["run", "list", "--asset", "totals"],
    ["run", "logs", "RUN", "--task", "orders"],
    ["partition", "list", "orders", "--status", "missing", "--status", "materialized"],
    ["partition", "list", "orders", "--partitions", "2025-01-01..2025-01-05", "--limit", "3"],
    ["partition", "status", "orders"],
    ["partition", "status", "accounts"],
    ["partition", "status", "totals"],
    ["partition", "stale", "orders+", "--transitive"],
    ["partition", "why", "totals"],
    ["backfill", "status", "history", "--watch"],
    ["backfill", "chunks", "history", "--after", "0"],
    ["backfill", "preview", "revenue", "--filter", "missing", "--include-upstream", "--max-upstream-depth", "-1"],
    ["schedule", "next", "by_function", "--from", "2025-03-01", "--days", "2"],
    ["asset", "show", "accounts"],
    ["lineage", "downstream", "orders", DAY, "--depth", "1"],
    ["plan", "+revenue", "--partitions", "2025-01-04"],
    ["plan", "--stale", "+revenue"],
    ["read", "orders"],
    ["read", "orders", DAY, "--limit", "7"],
    ["read", "orders", "2025-01-01..2025-01-02", "--as-of", "2100-01-01"],
]


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_read_says_the_same(asking: Asking, command: list[str]) -> None:
    # The house is at work: between two looks something may have happened, and then neither is wrong.
    for _ in range(3):
        told, here = asking.remotely(*command, "--json"), asking.at_home(*command, "--json")
        assert (told.code, here.code) == (0, 0), told.err + here.err
        lines = [timeless(one.documents) for one in (told, here)]
        if command[:2] == ["partition", "list"]:  # each has a cursor of its own, and takes no other
            lines = [[{**one[0], "cursor": one[0]["cursor"] is None}] for one in lines]
        if lines[0] == lines[1]:
            break
    assert lines[0] == lines[1]
    assert lines[0], "it says something"
    assert any(lines[0][0].values())


def test_no_read_is_forgotten() -> None:
    """Every command asks an operation, changes something, or is about a folder; a new one must be one of these."""
    asked = [*READS, *(list(one.command) for one in QUESTIONS.values() if one.command)]
    known = {" ".join(command[: 2 if _is_group(command[0]) else 1]) for command in asked}
    about_a_folder = {"init", "demo", "check", "up", "worker", "deploy", "vacuum", "doctor", "tick", "query"}
    about_a_folder |= {"reproduce", "partition sweep", "audit verify"}
    changing = {"materialize", "run cancel", "run retry", "partition mark", "partition rollback", "partition add"}
    changing |= {"asset accept-code"}
    changing |= {"partition remove", "checkpoint approve", "checkpoint reject", "lineage invalidate"}
    changing |= {"lineage rematerialize"}
    changing |= {f"backfill {verb}" for verb in ("create", "pause", "resume", "cancel", "retry-failed")}
    changing |= {f"schedule {verb}" for verb in ("create", "update", "delete", "pause", "resume", "trigger")}
    changing |= {
        f"sensor {verb}" for verb in ("create", "delete", "pause", "resume", "send", "evaluate", "reset-cursor")
    }
    everything = {name for name in _commands() if name.split()[0] not in ("token", "ledger")}
    assert everything == known | about_a_folder | changing


def _is_group(name: str) -> bool:
    return isinstance(main.cli.get_command(click.Context(main.cli), name), click.Group)


def _commands() -> Iterator[str]:
    context = click.Context(main.cli)
    for name in main.cli.list_commands(context):
        found = main.cli.get_command(context, name)
        if isinstance(found, click.Group):
            yield from (f"{name} {verb}" for verb in found.list_commands(context))
        else:
            yield name


def test_a_list_goes_on_where_it_ended(asking: Asking) -> None:
    first, whole = (
        asking.done("partition", "list", "orders", "--limit", "7"),
        asking.done("partition", "list", "orders"),
    )
    assert len(first["partitions"]) == 7
    rest = asking.done("partition", "list", "orders", "--limit", "1000", "--cursor", first["cursor"])
    assert rest["cursor"] is None
    assert [one["partition"] for one in first["partitions"] + rest["partitions"]] == [
        one["partition"] for one in whole["partitions"]
    ]


TOLD = [
    *(["run", "list"], ["run", "show", "RUN"], ["partition", "list", "orders"], ["partition", "stale"]),
    *(["partition", "status"], ["partition", "status", "orders"], ["partition", "status", "orders", DAY]),
    *(
        ["partition", "why", "revenue", DAY],
        ["asset", "why", "revenue"],
        ["backfill", "status", "history"],
        ["schedule", "show", "nightly"],
    ),
    *(["sensor", "evals", "landing"], ["sensor", "show", "landing"], ["asset", "list"], ["asset", "show", "revenue"]),
    *(["lineage", "upstream", "revenue", DAY], ["checkpoint", "list"], ["checkpoint", "show", "CHECKPOINT"]),
    *(["plan", "+revenue", "--partitions", "2025-01-04"], ["plan", "--stale", "+revenue"], ["read", "orders", DAY]),
    *(["backfill", "preview", "orders", "--filter", "missing"], ["schedule", "next", "--from", "2025-03-01"]),
]


@pytest.mark.parametrize("command", TOLD, ids=" ".join)
def test_people_are_told_the_same(asking: Asking, command: list[str]) -> None:
    for _ in range(3):
        told, here = asking.remotely(*command), asking.at_home(*command)
        if _without_ages(told.out) == _without_ages(here.out):
            break
    assert (told.code, here.code) == (0, 0), told.err + here.err
    assert _without_ages(told.out) == _without_ages(here.out)


def _without_ages(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if " ago" not in line and not line.startswith("next ")]


REFUSED = [
    (["run", "show", "run_nobody"], 3),
    (["partition", "status", "nothing", DAY], 3),
    (["partition", "status", "nothing"], 3),
    (["partition", "why", "orders", "2031-01-01"], 2),
    (["run", "cancel", "RUN"], 4),
    (["backfill", "pause", "history"], 4),
    (["backfill", "preview", "nothing"], 3),
    (["backfill", "create", "orders", "--partitions", "yesterday"], 2),
    (["schedule", "pause", "nobody"], 3),
    (["schedule", "next", "nobody"], 3),
    (["schedule", "create", "nightly", "--cron", "0 6 * * *", "--select", "orders"], 4),
    (["schedule", "create", "odd", "--cron", "often", "--select", "orders"], 2),
    (["schedule", "delete", "nightly"], 2),
    (["sensor", "create", "landing", "--messages", "--select", "totals"], 4),
    (["sensor", "send", "landing", "--data", "x"], 2),
    (["sensor", "evaluate", "landing", "--data", "x"], 2),
    (["sensor", "reset-cursor", "files", "--to", "foo"], 2),
    (["plan", "nothing"], 3),
    (["read", "orders", "2025-01-19"], 3),
    (["read", "--checkpoint", "01JHMN00000000000000000000"], 3),
    (["audit", "report", "orders", "2025-01-19"], 3),
    (["materialize", "orders", "--partitions", "never"], 2),
    (["partition", "mark", "orders", DAY, "--as", "materialized", "--reason", "x"], 4),
    (["partition", "add", "nowhere", "x"], 2),
    (["lineage", "invalidate", "nothing", "--reason", "x"], 3),
]


@pytest.mark.parametrize(("command", "code"), REFUSED, ids=lambda one: " ".join(one) if isinstance(one, list) else "")
def test_what_is_refused_is_refused_alike(asking: Asking, command: list[str], code: int) -> None:
    before = asking.place.shop.head()
    told, here = asking.remotely(*command, "--json"), asking.at_home(*command, "--json")
    assert (told.code, here.code) == (code, code), told.err + here.err
    assert json.loads(told.err)["error"] == json.loads(here.err)["error"]
    assert asking.place.shop.head() == before


def test_a_cursor_that_is_none_is_told_what_one_is(asking: Asking) -> None:
    told = asking.remotely("sensor", "reset-cursor", "files", "--to", "foo").err
    assert "'foo' is not a cursor of this sensor" in told
    assert "`servo sensor show`" in told
    assert "canonical" not in told


def test_a_sensor_says_when_it_is_polled_next(asking: Asking) -> None:
    for told in (asking.remotely("sensor", "show", "landing"), asking.at_home("sensor", "show", "landing")):
        assert [line for line in told.out.splitlines() if line.startswith("next       ")]
    assert "next " not in asking.remotely("sensor", "show", "uploads").out  # it is sent messages


# ── as processes ─────────────────────────────────────────────────────────────────────────────────────────────────


def servo(folder: Path, *command: str, url: str | None = None, python: tuple[str, ...] = ()) -> Any:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    if url is not None:
        environ["SERVO_URL"] = url
    if not python:
        return commands.servo(command, cwd=folder, env=environ)
    whole = [sys.executable, *python, *command]
    return subprocess.run(whole, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command", [["run", "show", "RUN"], ["partition", "status"], ["read", "orders", DAY]], ids=" ".join
)
def test_a_process_of_its_own_says_the_same(place: Place, command: list[str]) -> None:
    named = place.named(command)
    for _ in range(3):
        told = servo(place.elsewhere, *named, "--json", url=place.shop.served.url)
        here = servo(place.folder, *named, "--json")
        if told.stdout == here.stdout:
            break
    assert (told.returncode, here.returncode) == (0, 0), told.stderr + here.stderr
    assert json.loads(told.stdout) == json.loads(here.stdout)


_IN_ONE_PROCESS = """
import json, sys
from servo.cli.main import run

codes = [run(command) for command in json.loads(sys.argv[1])]
heavy = {"duckdb", "pyspark", "py4j", "litestar", "pyarrow", "pandas", "uvicorn", "httpx", "servo.projections"}
print(json.dumps([codes, sorted(heavy & sys.modules.keys())]), file=sys.stderr)
"""


def test_reads_of_a_server_load_nothing_that_is_heavy(place: Place) -> None:
    """What they take is the start of Python and what they import."""
    asked = [*READS, *(list(one.command) for one in QUESTIONS.values() if one.command and one.command[0] != "audit")]
    commands = [place.named(command) for command in (*asked, *TOLD)]
    commands += [[*place.named(command), "--json"] for command in asked]
    done = servo(place.elsewhere, json.dumps(commands), url=place.shop.served.url, python=("-c", _IN_ONE_PROCESS))
    assert done.returncode == 0, done.stderr[-3000:]
    codes, heavy = json.loads(done.stderr.splitlines()[-1])
    assert set(codes) == {0}
    assert heavy == []


def test_a_server_that_is_not_there_is_one_line(place: Place) -> None:
    told = servo(place.elsewhere, "run", "list", "--json", url="http://127.0.0.1:9")
    assert told.returncode == 1
    assert json.loads(told.stderr)["error"]["code"] == "server-unreachable"


# ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_through_the_server(asking: Asking) -> None:
    asked = asking.done("materialize", "orders", "--partitions", "2025-01-15", "--no-wait", "--request-id", "mine")
    assert asked["total"] == 1
    again = asking.done("materialize", "orders", "--partitions", "2025-01-15", "--no-wait", "--request-id", "mine")
    assert again == {**asked, "duplicate": True}
    waited = asking.done("materialize", "orders", "revenue", "--partitions", "2025-01-16")
    assert (waited["status"], waited["partitions"]["succeeded"]) == ("SUCCEEDED", 2)
    assert set(waited) == set(asking.home("materialize", "totals"))
    told = asking.remotely("materialize", "orders", "--partitions", "2025-01-17")
    assert told.code == 0
    assert "SUCCEEDED 1/1" in told.out
    retried = asking.done("run", "retry", waited["run_id"], "--all")
    assert retried["status"] == "SUCCEEDED"
    due = asking.done("materialize", "--stale", "totals", "revenue", "--partitions", "2025-01-18")
    assert due == {"run_id": None, "assets": {}, "total": 0}
    due = asking.done("materialize", "--stale", "orders+", "--partitions", "2025-01-18")
    assert due["assets"] == {"shop/orders": 1, "shop/revenue": 1}
    parked = asking.done("materialize", "filing", "--partitions", "2025-01-02")
    assert parked["waiting_for_approval"]
    cancelled = asking.done("run", "cancel", parked["run_id"], "--wait", "--reason", "enough")
    assert cancelled["status"] == "CANCELLED"


def test_who_asks_is_told_that_nobody_works(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [{"name": "control", "ok": True}, {"name": "worker", "ok": True, "detail": "none"}]
    monkeypatch.setattr(Client, "ready", lambda _: {"status": "ready", "checks": checks})
    told = asking.remotely("materialize", "orders", "--partitions", "2025-01-14", "--no-wait")
    assert told.code == 0
    assert "nothing is at work" in told.err


def test_checkpoints_through_the_server(asking: Asking) -> None:
    def waiting(day: str) -> str:
        found: str = asking.done("materialize", "filing", "--partitions", day)["checkpoints"][0]["checkpoint_id"]
        return found

    decided = asking.done("checkpoint", "reject", waiting("2025-01-03"), "--reason", "the totals are off")
    assert decided["status"] == "REJECTED"
    again = asking.remotely("checkpoint", "approve", decided["checkpoint_id"], "--json")
    assert again.code == 4
    assert json.loads(again.err)["error"]["code"] == "conflict"


def test_backfills_through_the_server(asking: Asking) -> None:
    made = asking.done("backfill", "create", "orders", "--start", "2025-01-04", "--end", "2025-01-06", "--wait")
    assert (made["status"]["over"], made["status"]["succeeded"]) == (True, 3)
    assert set(made) == set(asking.home("backfill", "create", "totals", "--wait"))
    told = asking.remotely("backfill", "create", "orders", "--partitions", "2025-01-07", "--name", "seventh")
    assert (told.code, told.out.splitlines()[0]) == (0, "✓ seventh is created: 1 partition")
    again = asking.done("lineage", "invalidate", "orders", "2025-01-08", "--reason", "corrected again")
    assert again["total"] == 1
    shown = asking.remotely("lineage", "invalidate", "orders", "2025-01-08", "--reason", "and again")
    assert "shop/revenue\t2025-01-08\t1" in shown.out
    anew = asking.done("lineage", "rematerialize", "orders", "2025-01-08")
    assert (anew["total_partitions"], anew["status"]["over"]) == (1, True)
    assert asking.done("lineage", "rematerialize", "orders", "2025-01-08")["backfill_id"] is None


def test_partitions_through_the_server(asking: Asking) -> None:
    frozen = asking.done("partition", "mark", "orders", "2025-01-13", "--as", "frozen", "--reason", "audited")
    assert (frozen["mark"], frozen["described"]) == ("FROZEN", "2025-01-13")
    assert set(frozen) == set(
        asking.home("partition", "mark", "orders", "2025-01-13", "--as", "thawed", "--reason", "x")
    )
    added = asking.done("partition", "add", "customer", "initech")
    assert (added["dimension"], added["added"]) == ("customer", ["initech"])
    assert asking.done("partition", "remove", "customer", "initech")["removed"] == ["initech"]
    assert set(added) == set(asking.home("partition", "add", "customer", "hooli"))
    nothing = asking.remotely("partition", "rollback", "orders", DAY, "--reason", "it was better", "--json")
    assert nothing.code == 3
    assert "no earlier version" in json.loads(nothing.err)["error"]["message"]


def test_schedules_and_sensors_through_the_server(asking: Asking) -> None:
    made = asking.done("schedule", "create", "weekly", "--cron", "@weekly", "--select", "orders", "--tag", "a=b")
    assert made["version"] == 1
    assert asking.home("schedule", "show", "weekly")["tags"] == {"a": "b"}
    edited = asking.done("schedule", "update", "weekly", "--cron", "0 7 * * mon", "--expected-version", "1")
    assert (edited["version"], edited["changed"]) == (2, ["cron"])
    late = asking.remotely("schedule", "update", "weekly", "--cron", "0 8 * * mon", "--expected-version", "1")
    assert late.code == 4
    paused = asking.done("schedule", "pause", "weekly", "--reason", "a holiday")
    assert not asking.home("schedule", "show", "weekly")["enabled"]
    assert asking.done("schedule", "pause", "weekly")["duplicate"]
    assert asking.done("schedule", "resume", "weekly", "--expected-version", str(paused["version"]))["enabled"]
    assert asking.done("schedule", "trigger", "nightly", "--at", "2025-01-11T06:00:00")["status"] == "TRIGGERED"
    assert asking.done("schedule", "delete", "weekly", "--reason", "no more")["name"] == "weekly"
    assert asking.at_home("schedule", "show", "weekly").code == 3
    told = asking.done("sensor", "create", "told", "--messages", "--select", "orders", "--partitions", "{day}")
    assert told["enabled"]
    sent = asking.done("sensor", "send", "told", "--data", '{"day": "2025-01-09"}', "--message-id", "4711")
    assert (sent["status"], len(sent["run_ids"])) == ("TRIGGERED", 1)
    assert asking.done("sensor", "send", "told", "--data", '{"day": "2025-01-09"}', "--message-id", "4711")["duplicate"]
    assert asking.done("sensor", "delete", "told")["name"] == "told"
    assert asking.done("sensor", "evaluate", "landing", "--dry-run")["event_id"] is None
    assert not asking.done("sensor", "pause", "landing")["enabled"]
    assert asking.done("sensor", "resume", "landing")["enabled"]
    assert asking.done("sensor", "reset-cursor", "landing", "--to", "7")["cursor"] == "7"


def test_reports_through_the_server(asking: Asking, tmp_path: Path) -> None:
    paper, printed = tmp_path / "report.json", tmp_path / "report.pdf"
    said = asking.done("audit", "report", "orders", DAY, "--output", str(paper), "--output", str(printed))
    assert said["files"] == [{"file": str(paper), "format": "json"}, {"file": str(printed), "format": "pdf"}]
    assert printed.read_bytes().startswith(b"%PDF")
    proved = asking.done("audit", "verify", str(paper))
    assert (proved["valid"], proved["with_ledger"]) == (True, True)
    assert proved == asking.home("audit", "verify", str(paper))
    forged = json.loads(paper.read_text())
    forged["asset"] = "shop/totals"
    paper.write_text(json.dumps(forged))
    told, here = (
        asking.remotely("audit", "verify", str(paper), "--json"),
        asking.at_home("audit", "verify", str(paper), "--json"),
    )
    assert (told.code, json.loads(told.out)["faults"]) == (1, json.loads(here.out)["faults"])


# ── what a server has no part in ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [["query", "SELECT 1"], ["tick"], ["deploy"], ["reproduce", "orders"], ["partition", "sweep"]],
    ids=" ".join,
)
def test_what_needs_the_folder_says_so_in_one_line(asking: Asking, command: list[str]) -> None:
    before = asking.place.shop.head()
    told = asking.remotely(*command)
    assert (told.code, told.out) == (2, "")
    assert "the project's folder" in told.err
    assert "SERVO_URL" in told.err
    assert told.err.count("\n") == 1
    assert list(asking.place.elsewhere.iterdir()) == []
    assert asking.place.shop.head() == before


@pytest.mark.parametrize(
    "command", [["ledger", "status"], ["token", "list"], ["check"], ["vacuum", "--dry-run"]], ids=" ".join
)
def test_what_is_about_this_machine_says_so_and_is_done(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setenv("SERVO_URL", asking.place.shop.served.url)
    monkeypatch.chdir(asking.place.folder)
    assert main.run(command) == 0
    out, err = capsys.readouterr()
    assert out
    assert err.count("\n") == 1
    assert "not about" in err
    assert "SERVO_URL" in err
