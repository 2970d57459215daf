"""`servo init`: what it begins passes `servo check`, its own tests, and runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.support import Folder

FILES = [".gitignore", "README.md", "definitions.py", "servo.toml", "tests/test_assets.py"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    outside = Folder(tmp_path_factory.mktemp("outside"))
    answer = outside.json("init", "my-shop")
    assert answer == {"folder": str(outside.path / "my-shop"), "namespace": "my_shop", "files": FILES}
    return Folder(outside.path / "my-shop")


def test_begins_where_it_is_told(empty: Folder) -> None:
    said = empty.ok("init", "shop", "--name", "sales")
    assert "cd shop" in said
    assert "servo materialize +month_report" in said
    written = [path for path in (empty.path / "shop").rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(empty.path / "shop")) for path in written) == FILES
    assert 'namespace = "sales"' in (empty.path / "shop" / "servo.toml").read_text()
    assert not any("{{" in path.read_text() for path in written)


def test_the_current_folder_is_the_default(empty: Folder) -> None:
    empty.ok("init", "--name", "here")
    assert (empty.path / "definitions.py").exists()


@pytest.mark.parametrize("there", FILES)
def test_overwrites_nothing(empty: Folder, there: str) -> None:
    (empty.path / there).parent.mkdir(exist_ok=True)
    (empty.path / there).write_text("mine")
    before = empty.files()
    assert there in empty.fails(4, "init")
    assert empty.files() == before


def test_leaves_a_project_of_pyproject_alone(empty: Folder) -> None:
    (empty.path / "pyproject.toml").write_text('[tool.servo]\ntenant = "acme"\n')
    assert "pyproject.toml" in empty.fails(4, "init")
    assert [path.name for path in empty.path.iterdir()] == ["pyproject.toml"]


def test_refuses_a_name_that_no_asset_can_have(empty: Folder) -> None:
    assert "cannot be a namespace" in empty.fails(2, "init", "--name", "My Shop")
    (empty.path / "file").touch()
    assert "is not a folder" in empty.fails(2, "init", "file")


def test_passes_the_check(begun: Folder) -> None:
    assert begun.json("check")["ok"] is True


def patiently(folder: Folder, *module: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module in the folder; Spark may take a while on a busy machine."""
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder.path,
        env=folder.environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_its_own_tests_pass(begun: Folder) -> None:
    done = patiently(begun, "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_every_command_of_its_readme_works(begun: Folder) -> None:
    commands = re.findall(r"^\$ servo (.*?) *#", (begun.path / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 5
    said = {}
    for command in commands:
        done = patiently(begun, "servo", *command.split())
        assert done.returncode == 0, (command, done)
        said[command.split()[0]] = done.stdout
    assert "✓ SUCCEEDED" in said["materialize"]
    assert len(said["read"].splitlines()) == 6  # a header and five products
    assert "SUCCEEDED" in said["run"]
    assert begun.rows("SELECT count(*) FROM partition_status WHERE materialization_id IS NOT NULL") == [
        [31 + 31 + 31 + 1]
    ]
    # Nothing is written outside of .servo, but what Python itself leaves.
    left = {path.name for path in begun.path.iterdir()} - {"__pycache__", ".servo"}
    assert left == {Path(name).parts[0] for name in FILES}
