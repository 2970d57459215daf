"""Tab, as the shells press it: the program is called with their variables, and says what to offer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.acceptance.support import Folder
from tests.support.served import House, house

HEAVY = {"duckdb", "pyspark", "py4j", "pyarrow", "pandas", "litestar", "rich", "psycopg"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        found.made("totals")  # who asks for something deploys, and remembers what
        yield found


def asked(shell: str, typed: str) -> dict[str, str]:
    words = typed.split(" ")
    if shell == "fish":
        return {"_SERVO_COMPLETE": "fish_complete", "COMP_WORDS": typed, "COMP_CWORD": words[-1]}
    return {"_SERVO_COMPLETE": f"{shell}_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}


def offered(folder: Folder, typed: str, shell: str = "bash") -> list[str]:
    said = Folder(folder.path, variables={**folder.variables, **asked(shell, typed)}).ok().splitlines()
    if shell == "zsh":
        return said[1::3]  # its type, the word, and its help
    return [line.partition(",")[2].partition("\t")[0] for line in said if line]


@pytest.fixture
def here(shop: House) -> Folder:
    return Folder(shop.project.settings.root)


@pytest.fixture
def elsewhere(shop: House, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("elsewhere"), variables={"SERVO_URL": shop.served.url})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_options_and_assets(here: Folder, shell: str) -> None:
    assert offered(here, "servo sch", shell) == ["schedule"]
    assert offered(here, "servo schedule tr", shell) == ["trigger"]
    assert offered(here, "servo materialize --acc", shell) == ["--accept-schema"]
    assert offered(here, "servo run list --status can", shell) == ["cancelling", "cancelled"]  # as it is typed
    assert offered(here, "servo partition status ord", shell) == ["orders"]
    assert sorted(offered(here, "servo partition status shop/", shell)) == [
        *("shop/filing", "shop/orders", "shop/revenue", "shop/totals")
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(here: Folder, shell: str) -> None:
    script = Folder(here.path, variables={"_SERVO_COMPLETE": f"{shell}_source"}).ok()
    assert f"_SERVO_COMPLETE={shell}_complete" in script


def test_within_a_selection(here: Folder) -> None:
    assert offered(here, "servo plan +rev") == ["+revenue"]
    assert offered(here, "servo materialize 2+ord") == ["2+orders"]
    assert offered(here, "servo read tot") == ["totals"]
    assert offered(here, "servo lineage upstream rev") == ["revenue"]
    assert offered(here, "servo plan nothing") == []


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_names_of_what_there_is(request: pytest.FixtureRequest, place: str) -> None:
    folder: Folder = request.getfixturevalue(place)
    assert offered(folder, "servo schedule show ni") == ["nightly"]
    assert offered(folder, "servo sensor show ") == ["landing", "uploads"]
    assert offered(folder, "servo asset show rev") == ["revenue"]


def test_what_changed_since_is_no_reason_for_silence(here: Folder) -> None:
    source = here.path / "definitions.py"
    before = source.read_text()
    try:
        source.write_text(before + "\nthis is not Python\n")
        assert offered(here, "servo plan ord") == ["orders"]
    finally:
        source.write_text(before)


def test_nothing_is_there_and_nothing_is_said(empty: Folder) -> None:
    for typed in ("servo plan ", "servo schedule show ", "servo sensor show ", "servo checkpoint show "):
        assert offered(empty, typed) == []
    gone = Folder(empty.path, variables={"SERVO_URL": "http://127.0.0.1:9/nowhere?x=1"})
    assert offered(gone, "servo plan ") == []


def test_it_is_light(here: Folder, elsewhere: Folder) -> None:
    for folder, typed in (
        *((here, "servo sch"), (here, "servo materialize --acc"), (here, "servo plan +rev")),
        *((elsewhere, "servo plan +rev"), (elsewhere, "servo schedule show ni"), (elsewhere, "servo sensor show la")),
    ):
        asking = Folder(folder.path, variables={**folder.variables, **asked("bash", typed)})
        done = asking.servo(python=["-X", "importtime"])
        assert done.returncode == 0, done
        assert done.stdout
        names = re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE)
        assert not {name.partition(".")[0] for name in names} & HEAVY, typed
