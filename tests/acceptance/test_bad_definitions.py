"""What cannot be meant, or cannot work here: one line that says where and what to do, and nothing is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.projects import serving
from tests.acceptance.support import Folder

HEADER = """from pyspark.sql import DataFrame
from servo import Daily, Dep, Static, asset, mapping
days, regions = Daily("date", start="2025-01-01", end="2025-02-01"), Static("region", ["eu"])
"""

MISFIT = """@asset(partitions=days)
def daily(): ...
@asset(partitions=regions, deps=[Dep('daily', mapping.Identity())])
def regional(): ...
"""
# Each with the line that is at fault, counted from the first below the header, and words that must be said.
WRONG = {
    "a cycle": (
        "@asset\ndef one(three): ...\n@asset\ndef two(one): ...\n@asset\ndef three(two): ...\n",
        1,
        ["shop/one", "shop/two", "shop/three"],
    ),
    "an unknown upstream": ("@asset\ndef orders(raw_ordres): ...\n@asset\ndef raw_orders(): ...\n", 1, ["raw_orders"]),
    "a mapping that does not fit": (
        MISFIT,
        3,
        ["shop/daily", "region"],
    ),
    "a module that does not import": ("import no_such_module\n", 1, ["no_such_module"]),
    "a mistake in the syntax": ("def broken(:\n    ...\n", 1, ["syntax"]),
    "an error at import": ("\nlimit = 1 / 0\n", 2, ["division by zero"]),
    "two of one name": ("@asset\ndef one(): ...\n@asset(name='one')\ndef other(): ...\n", 3, ["shop/one"]),
}


def project(path: Path, definitions: str) -> Folder:
    (path / "servo.toml").write_text('namespace = "shop"\n[spark]\nmaster = "local[2]"\n')
    (path / "definitions.py").write_text(definitions)
    return Folder(path)


@pytest.mark.parametrize("what", WRONG)
def test_wrong_definitions_are_one_line_and_no_ledger(tmp_path: Path, what: str) -> None:
    text, line, words = WRONG[what]
    folder = project(tmp_path, HEADER + text)
    said = folder.fails(2, "materialize", "one")
    lines = range(HEADER.count("\n") + line, HEADER.count("\n") + line + 2)  # the decorator's, or the function's
    assert any(f"definitions.py:{number}: " in said for number in lines), said
    for word in words:
        assert word in said, said
    assert said.rstrip().endswith(")") or "Error: " in said, said  # what to do about it, unless it is Python's own word
    assert not (tmp_path / ".servo").exists()


def test_wrong_definitions_leave_a_ledger_as_it_was(tmp_path: Path) -> None:
    folder = project(tmp_path, HEADER + "@asset(partitions=days)\ndef one(): ...\n")
    assert "2024-12-31" in folder.fails(2, "materialize", "one", "--partitions", "2024-12-31")
    assert head(folder).position == 0  # not even that there are assets
    folder.ok("materialize", "one", "--partitions", "2025-01-01", "--no-wait", "--json")
    before = head(folder)
    assert "2024-12-31" in folder.fails(2, "materialize", "one", "--partitions", "2024-12-31")
    assert "2025-02-01" in folder.fails(2, "materialize", "one@2025-01-30..2025-02-01")
    assert "one" in folder.fails(3, "materialize", "onne", "--partitions", "2025-01-01")
    (tmp_path / "definitions.py").write_text("import no_such_module\n")
    assert "definitions.py:1: " in folder.fails(2, "materialize", "one", "--partitions", "2025-01-01")
    assert head(folder) == before


def head(folder: Folder) -> Any:
    with folder.ledger() as ledger:
        return ledger.head()


# ── what shows when it runs ──────────────────────────────────────────────────────────────────────────────────────


RUNNABLE = HEADER + (
    "@asset(code_version='1')\ndef one(context) -> DataFrame:\n    return context.spark.range(3)\n"
    "@asset\ndef none(context) -> DataFrame:\n    context.spark.range(3)\n"
    "@asset\ndef mistaken(context) -> DataFrame:\n    return context.spark.range(3).select('idd')\n"
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    folder = project(tmp_path_factory.mktemp("shop"), RUNNABLE)
    with serving(folder):
        yield folder


def failure(folder: Folder, *args: str) -> str:
    """The error of the only partition of a run that failed."""
    done = folder.servo("materialize", *args, "--json")
    assert done.returncode == 1, done
    answer = json.loads(done.stdout)
    assert answer["status"] == "FAILED"
    [failed] = answer["failures"]
    return str(failed["error"])


def test_a_function_that_returns_no_frame_fails_with_its_line(shop: Folder) -> None:
    line = RUNNABLE.splitlines().index("def none(context) -> DataFrame:") + 1
    said = failure(shop, "none")
    assert any(f"definitions.py:{number}" in said for number in (line - 1, line)), said
    assert "DataFrame" in said
    assert "None" in said
    assert shop.rows("SELECT count(*) FROM materializations WHERE asset_key = 'shop/none'") == [[0]]


def test_a_column_that_is_not_there_fails_with_the_line_that_asked_for_it(shop: Folder) -> None:
    line = RUNNABLE.splitlines().index("    return context.spark.range(3).select('idd')") + 1
    said = failure(shop, "mistaken")
    assert f"definitions.py:{line}: " in said
    assert "idd" in said
    assert "\n" not in said


def test_other_columns_are_refused_until_they_are_accepted(shop: Folder) -> None:
    shop.ok("materialize", "one", "--json")
    before = shop.json("read", "one")
    assert before["columns"] == ["id"]
    # The version of the code is the same, since its author says so; what is computed is the code of now all the same.
    changed = RUNNABLE.replace("range(3)\n", "range(3).selectExpr('CAST(id AS STRING) AS id', '1 AS more')\n", 1)
    (shop.path / "definitions.py").write_text(changed)
    said = failure(shop, "one")
    assert "id" in said
    assert "--accept-schema" in said, said
    assert shop.json("read", "one") == before
    accepted = shop.json("materialize", "one", "--accept-schema")
    assert accepted["status"] == "SUCCEEDED"
    after = shop.json("read", "one")
    assert after["columns"] == ["id", "more"]
    assert sorted(after["rows"]) == [["0", 1], ["1", 1], ["2", 1]]


# ── what cannot work here ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PATH": "/nowhere"}, ["Java", "install"]),
        ({"JAVA_HOME": "/nowhere"}, ["/nowhere/bin/java", "JAVA_HOME"]),
        ({"SERVO_SPARK_MASTER": "spark://127.0.0.1:1"}, ["spark://127.0.0.1:1", "refused", "spark.master"]),
        ({"SERVO_SPARK_REMOTE": "sc://127.0.0.1:1"}, ["sc://127.0.0.1:1", "refused", "spark.remote"]),
    ],
)
def test_without_java_or_a_cluster_nothing_is_begun(
    tmp_path: Path, variables: dict[str, str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    folder = project(tmp_path, RUNNABLE)
    folder.variables = variables
    done = folder.servo("materialize", "one")
    assert done.returncode == 1, done
    [said] = [line for line in done.stderr.splitlines() if line.startswith("servo: ")]
    for word in words:
        assert word in said, done
    if (tmp_path / ".servo" / "ledger.db").exists():
        assert folder.rows("SELECT count(*) FROM tasks WHERE attempt > 0") == [[0]]
        assert folder.rows("SELECT DISTINCT status FROM runs") in ([], [["CANCELLED"]])
