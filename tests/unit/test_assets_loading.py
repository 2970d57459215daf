"""Loading a project: what is found, and how what is wrong with it is said."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

import servo
from servo.assets.importing import importable
from servo.assets.loading import Definitions, examine, load
from servo.errors import InvalidDefinition, InvalidSettings


class Place(msgspec.Struct):
    root: Path
    definitions: str | None = None
    namespace: str = "shop"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def write(place: Place, **files: str) -> None:
    for name, text in files.items():
        path = place.root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


def asset(name: str, *upstreams: str) -> str:
    return f"import servo\n@servo.asset\ndef {name}({', '.join(upstreams)}): ...\n"


def keys(place: Place) -> list[str]:
    return list(load(place).assets)


def problems(place: Place) -> list[str]:
    definitions, found = examine(place)
    assert definitions is None
    return [str(problem.error()) for problem in found]


def test_public_names() -> None:
    assert servo.__all__ == [
        "Approval", "Client", "Cron", "Daily", "Dep", "Dynamic", "Hourly", "Message", "Monthly", "NewFiles",
        "NewPartitions", "NewRows", "Retry", "RunEnded", "RunRequest", "Schedule", "SensorContext", "Skip", "Static",
        "TickContext", "Weekly", "__version__", "asset", "check", "mapping", "on", "read", "schedule", "sensor",
        "spark_views", "testing",
    ]  # fmt: skip
    assert set(servo.__all__) <= set(dir(servo))
    with pytest.raises(AttributeError, match="no attribute 'assett'"):
        servo.assett  # noqa: B018 (whether it raises is the question)


# ── what is found ────────────────────────────────────────────────────────────────────────────────────────────────


def test_binds_names_paths_and_mappings(place: Place) -> None:
    write(place, definitions=asset("a") + "@servo.asset(namespace='raw', renamed_from='old')\ndef b(a): ...\n")
    found = load(place)
    assert list(found.assets) == ["shop/a", "raw/b"]
    spec = found.assets["raw/b"].spec
    assert (spec.source.file, spec.source.line, spec.renamed_from) == ("definitions.py", 4, "raw/old")
    assert spec.dependencies[0].upstream == "shop/a"
    assert spec == found.graph["raw/b"]
    assert found.files == (place.root / "definitions.py",)
    assert str(place.root) not in sys.path
    assert [path.name for path in place.root.iterdir()] == ["definitions.py"]  # no bytecode either


def test_where_it_looks(place: Place) -> None:
    write(place, pipeline=asset("c"), unrelated="raise RuntimeError\n")
    assert keys(place) == ["shop/c"]  # the only file that speaks of Servo
    write(place, src__assets__orders=asset("b"), src__assets__more__deep=asset("d"))
    assert sorted(keys(place)) == ["shop/b", "shop/d"]
    write(place, definitions=asset("a"))
    assert sorted(keys(place)) == ["shop/a", "shop/b", "shop/d"]
    for setting, expected in (
        ("pipeline", ["shop/c"]),
        ("pipeline.py", ["shop/c"]),
        ("src/assets", ["shop/b", "shop/d"]),
        ("assets.more.deep", ["shop/d"]),
        ("definitions, pipeline", ["shop/a", "shop/c"]),
    ):
        place.definitions = setting
        assert sorted(keys(place)) == expected, setting
    place.definitions = "nowhere"
    with pytest.raises(InvalidSettings, match="no 'nowhere'"):
        load(place)


def test_modules_find_each_other(place: Place) -> None:
    write(place, helpers="LIMIT = 5\n", orders=asset("orders"), definitions="import helpers\nfrom orders import *\n")
    assert keys(place) == ["shop/orders"]


def test_what_is_exported_again_appears_once(place: Place) -> None:
    write(
        place,
        definitions="from assets import a, a as again\nimport assets\nall_of_them = [a, a]\n",
        assets=asset("a"),
    )
    assert keys(place) == ["shop/a"]


def test_factories_need_give_no_names(place: Place) -> None:
    write(
        place,
        definitions="""
            from servo import asset
            def make(n):
                @asset(name=f"t{n}")
                def table(): return n
                return table
            tables = [make(1), make(2)]
            make(3)
        """,
    )
    found = load(place)
    assert sorted(found.assets) == ["shop/t1", "shop/t2", "shop/t3"]
    assert len({one.spec.code_version for one in found.assets.values()}) == 3


def test_a_name_of_an_installed_module_does_no_harm(place: Place) -> None:
    write(place, json=asset("a"), **{"my-assets": asset("b")})
    place.definitions = "json.py, my-assets.py"
    import json

    assert sorted(keys(place)) == ["shop/a", "shop/b"]
    assert sys.modules["json"] is json


def test_loads_again_what_has_changed(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(place, definitions="from lib.tables import *\n", lib__tables=asset("a"))
    assert keys(place) == ["shop/a"]
    write(place, lib__tables=asset("b"))
    assert keys(place) == ["shop/b"]
    other = Place(tmp_path_factory.mktemp("other"))
    write(other, definitions=asset("c"))
    assert keys(other) == ["shop/c"]
    assert keys(place) == ["shop/b"]


def test_functions_that_import_late_find_their_modules(place: Place) -> None:
    write(place, late="ANSWER = 42\n", definitions=asset("a") + "    import late\n    return late.ANSWER\n")
    definitions = (place.root / "definitions.py").read_text().replace("(): ...", "():")
    (place.root / "definitions.py").write_text(definitions)
    found = load(place).assets["shop/a"]
    with importable(place.root):
        assert found() == 42


def test_what_modules_print_goes_elsewhere(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, definitions="print('hello')\n" + asset("a"))
    load(place)
    assert capsys.readouterr() == ("", "hello\n")


def test_custom_mappings_are_found_in_the_project(place: Place) -> None:
    write(
        place,
        maps="def every(asked, upstream):\n    return upstream.empty()\n",
        definitions="""
            from servo import Daily, asset, mapping
            days = Daily("date", start="2025-01-01")
            @asset(partitions=days)
            def a(): ...
            @asset(partitions=days, deps={"a": mapping.Custom("maps:every")})
            def b(a): ...
        """,
    )
    assert keys(place) == ["shop/a", "shop/b"]
    write(place, maps="")
    [said] = problems(place)
    assert "definitions.py:6: asset shop/b cannot read shop/a: there is no function 'maps:every'" in said


# ── what is wrong ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nif x\n", "definitions.py:2: SyntaxError: expected ':'"),
        ("\nimport nowhere_at_all\n", "definitions.py:2: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def f():\n    return 1 / 0\n\nf()\n", "definitions.py:2: ZeroDivisionError: division by zero"),
        ("import json\njson.loads('{')\n", "definitions.py:2: JSONDecodeError: Expecting property name"),
        ("import sys\nsys.exit(3)\n", "definitions.py:2: SystemExit: 3"),
        ("raise RuntimeError('two\\nlines')\n", "definitions.py:1: RuntimeError: two lines"),
        ("import servo\n\nd = servo.Daily('date', start='tomorrow')\n", "definitions.py:3: "),
        ("import servo\nservo.Schedule('x', cron='no')\n", "definitions.py:2: schedule x: 'no' is not a cron"),
        ("import servo\n@servo.asset(freshness=5)\ndef a(): ...\n", "definitions.py:2: asset a: freshness cannot be 5"),
        ("import servo\n@servo.asset\nclass A: ...\n", "definitions.py:"),
        ("import servo\n@servo.asset(colour=5)\ndef a(): ...\n", "colour"),
    ],
)
def test_says_where_a_module_fails_in_its_own_words(place: Place, text: str, said: str) -> None:
    write(place, definitions=text)
    [problem] = problems(place)
    assert said in problem
    assert "\n" not in problem
    with pytest.raises(InvalidDefinition):
        load(place)


def test_says_where_in_another_module(place: Place) -> None:
    write(place, definitions="import lib.deep\n", lib__deep="\n\nNO\n")
    assert problems(place) == ["lib/deep.py:3: NameError: name 'NO' is not defined"]


def test_gathers_what_is_wrong_in_all_modules(place: Place) -> None:
    write(
        place,
        definitions=asset("a", "nowhere") + asset("a") + "@servo.asset(group=1)\ndef c(): ...\n" + asset("d", "c"),
    )
    found = problems(place)
    assert len(found) == 3
    assert "definitions.py:7: asset c: group cannot be 1" in found[2]
    with pytest.raises(InvalidDefinition, match="and 2 more: `servo check` lists them"):
        load(place)
    write(place, definitions="oops\n", assets="import servo\n@servo.asset(group=1)\ndef b(c): ...\n")
    assert [said.split(":")[0] for said in problems(place)] == ["assets.py", "definitions.py"]


def test_schedules_must_select_what_is_there(place: Place) -> None:
    schedule = "servo.Schedule('{}', cron='0 6 * * *', select='{}')\n"
    write(place, definitions=asset("a") + "x = " + schedule.format("one", "+b") + "y = " + schedule.format("two", "a"))
    assert problems(place) == [
        "definitions.py:4: schedule one: there is no asset 'b' (`servo asset list` names them all)"
    ]
    write(place, definitions=asset("a") + "x = " + schedule.format("one", "a") + "y = " + schedule.format("one", "a"))
    [said] = problems(place)
    assert "definitions.py:5: schedule one is declared a second time; first at definitions.py:4" in said


def test_says_how_to_begin(place: Place) -> None:
    [said] = problems(place)
    assert "no assets are declared" in said
    assert "servo init" in said
    write(place, definitions="import servo\n")
    assert "no assets are declared" in problems(place)[0]


def test_definitions_are_values(place: Place) -> None:
    write(place, definitions=asset("a"))
    assert isinstance(load(place), Definitions)
