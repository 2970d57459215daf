"""The code version of a loaded asset covers all the project's code that its function reaches, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

import servo
from servo.assets.loading import load
from servo.assets.reach import changed_code
from servo.assets.spec import AssetSpec

SOURCE = str(Path(servo.__file__).parent.parent)  # so that child processes test this checkout


class Place(msgspec.Struct):
    root: Path
    definitions: str | None = None
    namespace: str = "shop"


ASSET = """
from servo import asset
{imports}

@asset
def orders(): ...

{before}
@asset
def f(orders):
    {body}
"""


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


def spec(root: Path, key: str = "shop/f") -> AssetSpec:
    return load(Place(root)).assets[key].spec


def project(root: Path, *, imports: str = "", before: str = "", body: str, **files: str) -> AssetSpec:
    write(root, definitions=ASSET.format(imports=imports, before=dedent(before), body=body), **files)
    return spec(root)


CLEAN = {"helpers": "def clean(o): return o + {x}\n"}
N = {"helpers": "N = {x}\n"}
HELPERS = {
    "a function of its own module": ("", "def clean(df):\n    return df + {x}\n", "return clean(orders)", {}),
    "a constant": ("", "LIMIT = {x}\n", "return orders + LIMIT", {}),
    "a constant with an annotation": ("", "LIMIT: int = {x}\n", "return orders + LIMIT", {}),
    "a constant that is built": ("", "def make(n): return n * {x}\nLIMIT = make(3)\n", "return orders + LIMIT", {}),
    "a constant that is added to": ("", "NAMES = []\nNAMES.append({x})\n", "return orders[NAMES]", {}),
    "a constant that a loop fills": ("", "M = {{}}\nfor i in range({x}):\n    M[i] = i\n", "return orders[M]", {}),
    "a registry that a decorator fills": (
        "from helpers import REGISTRY", "", "return REGISTRY['clean'](orders)",
        {"helpers": "REGISTRY = {{}}\ndef register(g):\n    REGISTRY[g.__name__] = g\n    return g\n"
                    "@register\ndef clean(o): return o + {x}\n"},
    ),
    "a registry that a decorator with a name fills": (
        "from helpers import REGISTRY", "", "return REGISTRY['clean'](orders)",
        {"helpers": "REGISTRY = {{}}\ndef register(name):\n    def inner(g):\n"
                    "        return REGISTRY.setdefault(name, g)\n    return inner\n"
                    "@register('clean')\ndef clean(o): return o + {x}\n"},
    ),
    "a registry that is an object": (
        "from helpers import registry", "", "return registry.held['clean'](orders)",
        {"helpers": "class Registry:\n    def __init__(self): self.held = {{}}\n"
                    "    def register(self, g):\n        self.held[g.__name__] = g\n        return g\n"
                    "registry = Registry()\n@registry.register\ndef clean(o): return o + {x}\n"},
    ),
    "a registry of subclasses": (
        "from helpers import KINDS", "", "return KINDS[0]().run(orders)",
        {"helpers": "KINDS = []\nclass Base:\n    def __init_subclass__(cls): KINDS.append(cls)\n"
                    "class One(Base):\n    def run(self, o): return o + {x}\n"},
    ),
    "a constant that something is taken from": (
        "", "R = dict(a=1, b=2)\nold = R.pop('ab'[{x} - 1])\n", "return orders + len(R)", {},
    ),
    "a constant that a comprehension fills": (
        "", "R = []\n_ = [R.append(i) for i in range({x})]\n", "return orders[R]", {},
    ),
    "a constant that its method fills": ("", "R = []\nlist(map(R.append, [{x}]))\n", "return orders[R]", {}),
    "a constant that is changed under another name": (
        "", "R = {{}}\nS = R\nS['a'] = {x}\n", "return orders[R]", {},
    ),
    "a constant that is changed in a list": (
        "", "A = {{}}\nB = {{}}\nfor one in (A, B):\n    one['a'] = {x}\n", "return orders[A]", {},
    ),
    "an attribute of a class that is set": ("", "class K: v = 0\nsetattr(K, 'v', {x})\n", "return orders + K.v", {}),
    "a registry of its own class that a decorator fills": (
        "from helpers import RULES", "", "return RULES.held['clean'](orders)",
        {"helpers": "class Rules:\n    def __init__(self): self.held = {{}}\n"
                    "    def define(self, g): self.held[g.__name__] = g\nRULES = Rules()\n"
                    "def rule(g):\n    RULES.define(g)\n    return g\n@rule\ndef clean(o): return o + {x}\n"},
    ),
    "a registry of an imported class that a decorator fills": (
        "from helpers import RULES", "", "return RULES.held['clean'](orders)",
        {"kinds": "class Rules:\n    def __init__(self): self.held = {{}}\n"
                  "    def define(self, g): self.held[g.__name__] = g\n",
         "helpers": "from kinds import Rules\nRULES = Rules()\n"
                    "def rule(g):\n    RULES.define(g)\n    return g\n@rule\ndef clean(o): return o + {x}\n"},
    ),
    "a registry that a decorator fills under another name": (
        "from helpers import RULES", "", "return RULES['clean'](orders)",
        {"helpers": "RULES = {{}}\ndef rule(g):\n    rules = RULES\n    rules[g.__name__] = g\n    return g\n"
                    "@rule\ndef clean(o): return o + {x}\n"},
    ),
    "what is written into an argument": (
        "", "SETTINGS = {{}}\ndef load(into): into['a'] = {x}\nload(SETTINGS)\n", "return orders[SETTINGS]", {},
    ),
    "what another module writes into an argument": (
        "import helpers", "SETTINGS = {{}}\nhelpers.load(SETTINGS)\n", "return orders[SETTINGS]",
        {"helpers": "def load(into): into['a'] = {x}\n"},
    ),
    "what a function of Python's writes into an argument": (
        "import random", "L = [1, 2, 3]\nrandom.Random({x}).shuffle(L)\n", "return orders[L]", {},
    ),
    "what is written into an argument by a function that is called": (
        "", "SETTINGS = {{}}\ndef load(into): into['a'] = {x}\ndef setup(): load(SETTINGS)\nsetup()\n",
        "return orders[SETTINGS]", {},
    ),
    "subclasses that their base keeps": (
        "from helpers import Base", "", "return Base.kinds[0]().run(orders)",
        {"helpers": "class Base:\n    kinds = []\n    def __init_subclass__(cls): cls.kinds.append(cls)\n"
                    "class Other(Base): pass\nclass One(Other):\n    def run(self, o): return o + {x}\n"},
    ),
    "subclasses that are asked for": (
        "from helpers import Base", "", "return [one().run(orders) for one in Base.__subclasses__()]",
        {"helpers": "class Base: pass\nclass One(Base):\n    def run(self, o): return o + {x}\n"},
    ),
    "a constant that a function fills": (
        "", "RATES = {{}}\ndef _fill():\n    RATES['x'] = {x}\n_fill()\n", "return orders + RATES['x']", {},
    ),
    "what a function is called with that fills a constant": (
        "", "RATES = {{}}\ndef _put(n):\n    RATES['x'] = n\ndef _fill(n):\n    _put(n)\nif True:\n    _fill({x})\n",
        "return orders + RATES['x']", {},
    ),
    "a global that a function sets": (
        "", "FACTOR = None\ndef _set():\n    global FACTOR\n    FACTOR = {x}\n_set()\n", "return orders + FACTOR", {},
    ),
    "what a function is called with that sets a global": (
        "", "def _set(n):\n    global FACTOR\n    FACTOR = n\n_set({x})\n", "return orders + FACTOR", {},
    ),
    "what is run unless for the command line": (
        "", "if __name__ == '__main__':\n    N = 0\nelse:\n    N = {x}\n", "return orders + N", {},
    ),
    "what is not run for the command line": (
        "", "N = 0\nif __name__ != '__main__':\n    N = {x}\n", "return orders + N", {},
    ),
    "an imported function": ("from helpers import clean", "", "return clean(orders)", CLEAN),
    "under another name": ("from helpers import clean as c", "", "return c(orders)", CLEAN),
    "through its module": ("import helpers", "", "return helpers.clean(orders)", CLEAN),
    "through a package": (
        "import lib.tools", "", "return lib.tools.clean(orders)",
        {"lib/tools": "def clean(o): return o + {x}\n"},
    ),
    "through a package that hands it on": (
        "from lib import clean", "", "return clean(orders)",
        {"lib/__init__": "from .tools import clean\n", "lib/tools": "def clean(o): return o + {x}\n"},
    ),
    "through a star": ("from helpers import *", "", "return clean(orders)", CLEAN),
    "a module below src": (
        "from tools import clean", "", "return clean(orders)",
        {"src/tools": "def clean(o): return o + {x}\n"},
    ),
    "a helper's helper": (
        "from helpers import clean", "", "return clean(orders)",
        {"helpers": "import deep\ndef clean(o): return deep.LIMITS['a'] + o\n", "deep": "LIMITS = dict(a={x})\n"},
    ),
    "a cycle": (
        "from helpers import even", "", "return even(orders)",
        {"helpers": "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != {x} and even(n - 1)\n"},
    ),
    "modules that import each other": (
        "import one", "", "return one.a(orders)",
        {"one": "import two\ndef a(n): return two.b(n)\n",
         "two": "import one\nN = {x}\ndef b(n): return one.a(n) + N\n"},
    ),
    "an import inside the function": ("", "", "from helpers import clean; return clean(orders)", CLEAN),
    "a module imported inside": ("", "", "import helpers as h; return h.clean(orders)", CLEAN),
    "a module imported by its name": (
        "import importlib", "", "return importlib.import_module('helpers').clean(orders)",
        CLEAN,
    ),
    "a module that is handed on": ("import helpers", "", "return getattr(helpers, 'clean')(orders)", CLEAN),
    "a method": (
        "from helpers import C", "", "return C().run(orders)",
        {"helpers": "class C:\n    def run(self, o): return o + {x}\n"},
    ),
    "a base class": (
        "from helpers import D", "", "return D().run(orders)",
        {"helpers": "class C:\n    def run(self, o): return o + {x}\nclass D(C): pass\n"},
    ),
    "an attribute of a class": (
        "from helpers import C", "", "return orders + C.N",
        {"helpers": "class C:\n    N = {x}\n"},
    ),
    "a field of a dataclass": (
        "from helpers import C", "", "return orders + C().n",
        {"helpers": "from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = {x}\n"},
    ),
    "an object": (
        "from helpers import c", "", "return c.run(orders)",
        {"helpers": "class C:\n    def __init__(self, n): self.n = n\n    def run(self, o): return o\nc = C({x})\n"},
    ),
    "a decorator's code": (
        "", ("def twice(g):\n    def inner(orders): return g(orders) + {x}\n    return inner\n"
        "@asset\n@twice\ndef other(orders): return 1\n"),
        "return other(orders)", {},
    ),
    "a decorator's argument": (
        "from helpers import udf", "@udf({x})\ndef g(o): return o\n", "return g(orders)",
        {"helpers": "def udf(n):\n    return lambda g: g\n"},
    ),
    "a default": ("", "N = {x}\ndef g(o, n=N): return o\n", "return g(orders)", {}),
    "an annotation that a decorator reads": (
        "from helpers import size", "", "return size(orders)",
        {"helpers": "from functools import singledispatch\nclass A: pass\nclass B: pass\n@singledispatch\n"
                    "def size(o): return 1\n@size.register\ndef _(o: (A, B)[{x} - 1]): return 2\n"},
    ),
    "a result that a decorator reads": (
        "from helpers import size", "", "return size(orders)",
        {"helpers": "def udf(g): return g\n@udf\ndef size(o) -> 'type {x}': return o\n"},
    ),
    "what an annotation that a decorator reads means": (
        "from helpers import size", "", "return size(orders)",
        {"helpers": "KIND = '{x}'\ndef udf(g): return g\n@udf\ndef size(o: KIND): return o\n"},
    ),
    "a nested function": ("from helpers import N", "", "g = lambda o: [o + N for _ in range(2)]; return g(orders)", N),
    "a name of a comprehension's own": (
        "from helpers import N", "", "return [n for n in N]",
        {"helpers": "N = [{x}]\n"},
    ),
    "a keyword's value": ("from helpers import N", "", "return dict(limit=N)", N),
    "the only definition where an import of others fails": (
        "try:\n    from fast_text import clean\nexcept ImportError:\n    from slow_one import clean",
        "", "return clean(orders)",
        {"slow_one": "try:\n    from fast_text import clean\nexcept ImportError:\n    def clean(o): return o + {x}\n"},
    ),
    "a constant where an import of others fails": (
        "", "try:\n    from fast_text import LIMIT\nexcept ImportError:\n    LIMIT = {x}\n",
        "return orders + LIMIT", {},
    ),
    "a name that a package has itself": (
        "from lib.tools import clean", "", "return clean(orders)",
        {"lib/__init__": "N = {x}\n", "lib/tools": "from . import N\ndef clean(o): return o + N\n"},
    ),
    "a name that the package above has": (
        "from lib.deep.tools import clean", "", "return clean(orders)",
        {"lib/__init__": "def g(o): return o + {x}\n", "lib/deep/__init__": "",
         "lib/deep/tools": "from .. import g\ndef clean(o): return g(o)\n"},
    ),
    "a module that a package imports from itself": (
        "import lib", "", "return lib.tools.clean(orders)",
        {"lib/__init__": "from . import tools\n", "lib/tools": "def clean(o): return o + {x}\n"},
    ),
    "what a module that is handed on imports": (
        "import hands", "", "return getattr(hands, 'clean')(orders)",
        {"hands": "from helpers import clean\n", **CLEAN},
    ),
    "what a module that is handed on imports by a star": (
        "import hands", "", "return getattr(hands, 'clean')(orders)",
        {"hands": "from helpers import *\n", **CLEAN},
    ),
    "through two stars": (
        "from hands import *", "", "return clean(orders)",
        {"hands": "from helpers import *\n", **CLEAN},
    ),
    "the last of two stars": (
        "from hands import *\nfrom helpers import *", "", "return clean(orders)",
        {"hands": "def clean(o): return o\n", **CLEAN},
    ),
    "a choice of imports": (
        "try:\n    from fast_one import clean\nexcept ImportError:\n    from slow_one import clean",
        "", "return clean(orders)",
        {"slow_one": "def clean(o): return o + {x}\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HELPERS)
def test_follows(name: str, tmp_path: Path) -> None:
    imports, before, body, files = HELPERS[name]

    def version(x: int, comment: str = "") -> str:
        made = {file: text.format(x=x) + comment for file, text in files.items()}
        return project(tmp_path, imports=imports, before=before.format(x=x), body=body, **made).code_version

    first = version(1)
    assert version(1, "\n# a remark\n") == first
    assert version(2) != first
    assert version(1) == first


FOREIGN = {
    "a function": ("from pyspark.sql.functions import {x} as agg", "return agg(orders)", "sum", "max"),
    "a module": ("import {x} as j", "return j.dumps(orders)", "json", "pickle"),
    "a module that has it by a star": ("from {x} import *", "return floor(orders)", "math", "numpy"),
    "a choice": ("try:\n    import {x} as j\nexcept ImportError:\n    import json as j", "return j.dumps(1)", "a", "b"),
    "one that helpers hand on": ("from hands import agg", "return agg(orders)", "sum", "max"),
    "one that a helper uses": ("from hands import total", "return total(orders)", "sum", "max"),
    "one of a module that is handed on": ("import hands", "return getattr(hands, 'agg')(orders)", "sum", "max"),
    "one that is imported inside": ("", "from hands import agg; return agg(orders)", "sum", "max"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_tells_imports_of_others_apart(name: str, tmp_path: Path) -> None:
    imports, body, *choices = FOREIGN[name]
    hands = "from pyspark.sql.functions import {x} as agg\ndef total(o): return agg(o)\n"

    def version(x: str) -> str:
        write(tmp_path, hands=hands.format(x=x if x in ("sum", "max") else "sum"))
        text = f"from servo import asset\n{imports.format(x=x)}\n@asset\ndef f(): {body.replace('orders', '1')}\n"
        write(tmp_path, definitions=text)
        return spec(tmp_path).code_version

    first, second, again = (version(x) for x in (*choices, choices[0]))
    assert first != second
    assert first == again


def test_a_function_that_moves_with_its_imports_is_the_same_code(tmp_path: Path) -> None:
    text = "from servo import asset\n{imports}\n@asset\ndef f(): return F.lit(1)\n"
    write(tmp_path, definitions=text.format(imports="from pyspark.sql import functions as F"))
    first = spec(tmp_path).code_version
    write(tmp_path, definitions="import other\n")
    write(tmp_path, other=text.format(imports="import pyspark.sql.functions as F\nimport json"))
    assert spec(tmp_path).code_version == first


def test_two_imports_that_swap_their_names_are_a_change(tmp_path: Path) -> None:
    text = "from servo import asset\nfrom math import {} as a, {} as b\n@asset\ndef f(): return a(1) - b(2)\n"
    versions = set()
    for names in (("floor", "ceil"), ("ceil", "floor")):
        write(tmp_path, definitions=text.format(*names))
        versions.add(spec(tmp_path).code_version)
    assert len(versions) == 2


SAME = {
    "a function that nothing uses": ("", "def clean(o): return o\ndef unused(o): return {x}\n", "return clean(orders)"),
    "a name that a parameter hides": ("", "LIMIT = {x}\ndef g(LIMIT): return LIMIT\n", "return g(orders)"),
    "a name that is assigned inside": ("", "LIMIT = {x}\n", "LIMIT = 5; return orders + LIMIT"),
    "a name of a comprehension": ("", "n = {x}\n", "return [n for n in orders]"),
    "an attribute of something else": ("", "clean = {x}\n", "return orders.clean"),
    "an annotation": ("", "N = {x}\ndef g(o: N) -> N: return o\n", "return g(orders)"),
    "an annotation that no decorator reads": (
        "from functools import lru_cache",
        "N = {x}\n@lru_cache(3)\n@staticmethod\ndef g(o: N) -> N: return o\n",
        "return g(orders)",
    ),
    "an annotation of an asset": ("", "N = {x}\n@asset\ndef g(orders: N) -> N: return 1\n", "return g(orders)"),
    "what is for the command line": ("", "N = 1\nif __name__ == '__main__':\n    N = {x}\n", "return orders + N"),
    "a function that logs as it does": (
        "import logging",
        "LOG = logging.getLogger()\ndef g(o): LOG.info(1); return o\n@g\ndef h(o): LOG.info({x})\n",
        "return g(orders)",
    ),
    "what is logged": (
        "import logging",
        "LOG = logging.getLogger()\nLOG.info({x})\nn = LOG.isEnabledFor({x})\nprint(LOG, {x})\n",
        "LOG.info(1); return orders",
    ),
    "what a text is used for": ("", "NAME = 'a'\nOTHER = NAME.upper() + '{x}'\nstr(NAME)\n", "return orders + NAME"),
    "how long a list is": ("", "L = [1]\nMORE = len(L) + {x}\nif {x} in L: pass\n", "return orders[L]"),
    "what a function is handed to": (
        "",
        "def g(o): return o\nPAIR = (g, {x})\nh = map(g, [{x}])\n",
        "return g(orders)",
    ),
    "an object that others only read": (
        "",
        "class Held:\n    def get(self, n): return self.n, self.more(n)\n    def more(self, n): return n\n"  # noqa: ISC004
        "S = Held()\ndef other(o): return S.get({x})\n",
        "return S.get(orders)",
    ),
    "another asset that uses an object of the project's": (
        "",
        "class Client:\n    def get(self, n): self.n = n\nC = Client()\n@asset\ndef g(orders): return C.get({x})\n",
        "return C.get(orders)",
    ),
    "an asset that is partitioned by the same": (
        "from servo import Static",
        "kinds = Static('kind', ['a'])\n@asset(partitions=kinds)\ndef g(): return {x}\n",
        "return kinds.name",
    ),
    "a schema that others use": (
        "from functools import partial",
        "SCHEMA = [1]\ndef typed(g): return partial(g, SCHEMA)\n@typed\ndef g(o): return {x}\n",
        "return orders, SCHEMA",
    ),
    "a name of its own that a function fills": (
        "",
        "def g(o): return N\nN = {{}}\ndef h():\n    N = {{}}\n    N['x'] = {x}\nh()\n",
        "return g(orders)",
    ),
    "another asset's declaration": ("", "@asset(description='{x}')\ndef g(orders): return 1\n", "return g(orders)"),
    "a schedule beside it": (
        "import servo",
        "servo.Schedule(name='s', cron='0 {x} * * *', select='f')\n",
        "return orders if servo.__version__ else 1",
    ),
    "what is done to modules of others": ("import logging", "logging.basicConfig(level={x})\n", "return logging"),
}


@pytest.mark.parametrize("name", SAME)
def test_does_not_follow(name: str, tmp_path: Path) -> None:
    imports, before, body = SAME[name]
    versions = {project(tmp_path, imports=imports, before=before.format(x=x), body=body).code_version for x in (1, 2)}
    assert len(versions) == 1


DECLARING = {
    "a partial of it": "daily = partial(asset, partitions=days, owners=OWNERS)",
    "another name of it": "X = asset\ndaily = partial(X, partitions=days, owners=OWNERS)",
    "a function that calls it": "def daily(**k): return asset(partitions=days, owners=OWNERS, **k)",
    "a function that hands it on": (
        "def daily(**k):\n    def inner(g): return asset(partitions=days, owners=OWNERS, **k)(g)\n    return inner"
    ),
    "one that was made before": "made = asset(partitions=days, owners=OWNERS)\ndef daily(): return made",
    "a class that calls it": (
        "class daily:\n    def __call__(self, g): return asset(partitions=days, owners=OWNERS)(g)"
    ),
    "a function that wraps": (
        "def retried(g):\n    def inner(): return g()\n    return inner\n"
        "def daily():\n    return lambda g: asset(name='f', partitions=days, owners=OWNERS)(retried(g))"
    ),
}


@pytest.mark.parametrize("place", ["here", "common", "lib"])
@pytest.mark.parametrize("name", DECLARING)
def test_leaves_out_what_is_declared_by_another_name(name: str, place: str, tmp_path: Path) -> None:
    common = "from functools import partial\nfrom servo import Daily, asset\n"
    common += "days = Daily('date', start='2025-01-0{x}')\nOWNERS = ['anna{x}']\n" + DECLARING[name] + "\n"
    text = "{imports}\n@{decorator}()\ndef f(): return {y}\n"

    def version(x: int, y: int = 1) -> str:
        made = common.format(x=x)
        if place == "here":
            write(tmp_path, definitions=text.format(imports=made, decorator="daily", y=y))
        elif place == "common":
            write(
                tmp_path, common=made, definitions=text.format(imports="import common", decorator="common.daily", y=y)
            )
        else:
            write(tmp_path, **{"lib/tools": made, "lib/__init__": "from .tools import daily\n"})
            write(tmp_path, definitions=text.format(imports="from lib import *", decorator="daily", y=y))
        return spec(tmp_path).code_version

    assert version(1) == version(2)
    assert version(1) != version(1, y=2)


def test_what_a_function_does_that_gives_the_asset_another_function_counts(tmp_path: Path) -> None:
    text = """
        from servo import asset
        def retried(g):
            def inner(): return g(), {x}
            return inner
        def daily(**k):
            def inner(g): return asset(**k)(retried(g))
            return inner
        @daily()
        def g(): return 1
        @asset
        def f(): return g()
    """
    versions = set()
    for x in (1, 2):
        write(tmp_path, definitions=text.format(x=x))
        versions |= {spec(tmp_path).code_version, spec(tmp_path, "shop/inner").code_version}
    assert len(versions) == 4


def test_leaves_out_declarations_of_a_module_that_counts_as_a_whole(tmp_path: Path) -> None:
    common = """
        from functools import partial
        from servo import Daily, Schedule, asset
        days = Daily("date", start="2025-01-0{x}")
        daily = partial(asset, owners=["anna{x}"])
        Schedule("s", cron="0 {x} * * *", select="f")
        N = {y}
    """

    def version(x: int, y: int) -> str:
        return project(
            tmp_path, imports="import common", body="return getattr(common, 'N')", common=common.format(x=x, y=y)
        ).code_version

    assert version(1, 1) == version(2, 1)
    assert version(1, 1) != version(1, 2)


def test_does_not_follow_packages_inside_the_projects_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv/lib/python3/site-packages"
    monkeypatch.syspath_prepend(str(installed))
    versions = set()
    for x in (1, 2):
        write(installed, bought=f"def clean(o): return o + {x}\n")
        made = project(tmp_path, imports="import bought", body="return bought.clean(orders)")
        assert not any("bought" in name for name in made.reached)
        versions.add(made.code_version)
    assert len(versions) == 1


def test_follows_what_assets_close_over(tmp_path: Path) -> None:
    text = """
        from dataclasses import dataclass
        from servo import asset
        import helpers
        @asset
        def orders(): ...
        @dataclass
        class Limits:
            most: int
        def make(name, limits, clean):
            @asset(name=name)
            def inner(orders):
                return clean(orders, limits.most)
        make("one", Limits({most}), helpers.{clean})
        make("two", Limits(7), helpers.other)
    """
    helpers = "def clean(o, n): return o + {x}\ndef other(o, n): return o\n"

    def versions(most: int = 1, clean: str = "clean", x: int = 1) -> tuple[str, str]:
        write(
            tmp_path,
            definitions=text.replace("{most}", str(most)).replace("{clean}", clean),
            helpers=helpers.format(x=x),
        )
        assets = load(Place(tmp_path)).assets
        return assets["shop/one"].spec.code_version, assets["shop/two"].spec.code_version

    one, two = versions()
    assert len({one, two, versions(most=2)[0], versions(clean="other")[0], versions(x=2)[0]}) == 5
    assert {versions(most=2)[1], versions(clean="other")[1], versions(x=2)[1]} == {two}


CLOSED_OVER = {
    "a schema": ("from pyspark.sql.types import *", "StructType([StructField('a', {x}())])", "LongType", "StringType"),
    "a schema's nulls": ("from pyspark.sql.types import *", "StructField('a', LongType(), {x})", "True", "False"),
    "a decimal": ("from pyspark.sql.types import *", "[DecimalType(10, {x})]", "2", "3"),
    "a class with slots": ("from helpers import Slots", "Slots({x}, 1)", "1", "2"),
    "a class that adds slots": ("from helpers import More", "More(1, {x})", "1", "2"),
    "a class that adds slots to attributes": ("from helpers import Mixed", "Mixed({x}, 1)", "1", "2"),
    "an exception": ("", "ValueError({x})", "1", "2"),
    "a deque": ("from collections import deque", "deque([{x}])", "1", "2"),
    "a mapping that cannot be changed": ("from types import MappingProxyType as M", "M(dict(a={x}))", "1", "2"),
    "a chain of mappings": ("from collections import ChainMap", "ChainMap(dict(a=1), dict(b={x}))", "1", "2"),
    "a namespace": ("from types import SimpleNamespace", "SimpleNamespace(a={x})", "1", "2"),
    "what gets an item": ("from operator import itemgetter", "itemgetter({x})", "1", "2"),
    "what calls a method": ("from operator import methodcaller", "methodcaller('a', n={x})", "1", "2"),
    "a function of Python's": ("", "{x}", "min", "max"),
    "a method of a class of Python's": ("", "str.{x}", "upper", "lower"),
    "a defaultdict": ("from collections import defaultdict", "defaultdict({x})", "int", "list"),
    "a time": ("from datetime import *", "datetime(2025, 1, {x}, tzinfo=timezone.utc)", "1", "2"),
    "the zone of a time": ("from datetime import *", "datetime(2025, 1, 1, tzinfo={x})", "None", "timezone.utc"),
    "a text of its own class": ("from helpers import Text", "Text('{x}')", "1", "2"),
    "an attribute of such a text": ("from helpers import Text", "Text('a', {x})", "1", "2"),
    "a number of its own class": ("from helpers import Number", "Number({x})", "1", "2"),
    "a dictionary of its own class": ("from helpers import Config", "Config(a={x})", "1", "2"),
    "an attribute of such a dictionary": ("from helpers import Noted", "Noted({x})", "1", "2"),
    "a property of a class made in a function": ("from helpers import made", "made({x})", "1", "2"),
    "a default of a class made in a function": (
        "from dataclasses import *",
        "(lambda n: make_dataclass('C', [('n', int, field(default=n))])())({x})",
        "1",
        "2",
    ),
    "an object that wraps a function": ("from helpers import Retry", "Retry(len, {x})", "1", "2"),
    "a lambda among others": ("", "[lambda a: a + 1, lambda a: a + 2][{x}]", "0", "1"),
    "a lambda with a nested one": ("", "(lambda a: lambda b: a + b, lambda a: lambda b: a - b)[{x}]", "0", "1"),
    "one of two equal lambdas with other values": ("", "[(lambda n: lambda: n)({x}), lambda: 0]", "1", "2"),
    "a lambda on its line's other side": ("", "[lambda a: a, lambda a: a + {x}]", "1", "2"),
    "the end of a long chain": ("from helpers import chain", "chain({x})", "1", "2"),
    "one of objects that refer to each other": ("from helpers import ring", "ring({x})", "1", "2"),
    "the end of a ladder of lists": ("from helpers import ladder", "ladder({x})", "1", "2"),
}

HELD = """
    from functools import reduce, update_wrapper
    class Slots:
        __slots__ = ("__one", "two", "unset")
        def __init__(self, one, two): self.__one, self.two = one, two
    class More(Slots):
        __slots__ = "three"
        def __init__(self, one, three): super().__init__(one, 2); self.three = three
    class Mixed(Slots):
        def __init__(self, one, three): super().__init__(one, 2); self.three = three
    class Text(str):
        def __new__(cls, text, note=0): made = super().__new__(cls, text); made.note = note; return made
    class Number(int): pass
    class Config(dict): __getattr__ = dict.get
    class Noted(dict):
        def __init__(self, note): self.note = note
    class Retry:
        def __init__(self, function, times): update_wrapper(self, function, ()); self.times = times
        def __call__(self): pass
    class Node:
        def __init__(self, held=()): self.held = held
    def made(n):
        class Made:
            @property
            def n(self): return n
        return Made()
    def chain(n):
        return reduce(lambda made, _: Node(made), range(3000), n)
    def ring(n):
        nodes = [Node() for _ in range(12)]
        for one in nodes: one.held = list(nodes)
        nodes[7].n = n
        return nodes[0]
    def ladder(n):
        return reduce(lambda made, _: [made, made], range(60), n)
"""


@pytest.mark.parametrize("name", CLOSED_OVER)
def test_tells_values_that_assets_close_over_apart(name: str, tmp_path: Path) -> None:
    imports, value, *values = CLOSED_OVER[name]
    text = "from servo import asset\n{imports}\ndef make(v):\n    @asset\n    def f(): return v\nmake({value})\n"

    def version(x: str) -> str:
        write(tmp_path, helpers=HELD, definitions=text.format(imports=imports, value=value.format(x=x)))
        return spec(tmp_path).code_version

    first, second, again = (version(x) for x in (*values, values[0]))
    assert first != second
    assert first == again


SAME_VALUES = {
    "what an object has computed": "from helpers import Lazy\nvalue = Lazy(); value.n",
    "the order of a dictionary": "value = dict(a=1, b=2) if {x} == 1 else dict(b=2, a=1)",
    "an object of others": "import threading\nvalue = [threading.Lock() for _ in range({x})][:1]",
    "what refuses every attribute": "from helpers import Closed\nvalue = Closed()",
    "what answers for any attribute": "from unittest.mock import MagicMock\nvalue = MagicMock(n={x})",
}


@pytest.mark.parametrize("name", SAME_VALUES)
def test_values_that_are_the_same(name: str, tmp_path: Path) -> None:
    helpers = (
        "from functools import cached_property\nclass Lazy:\n    @cached_property\n    def n(self): return object()\n"
        "class Closed:\n    def __getattribute__(self, name): raise RuntimeError(name)\n"
    )
    text = "from servo import asset\n{}\ndef make(v):\n    @asset\n    def f(): return v\nmake(value)\ndel value\n"
    versions = set()
    for x in (1, 2):
        write(tmp_path, helpers=helpers, definitions=text.format(SAME_VALUES[name].format(x=x)))
        versions.add(spec(tmp_path).code_version)
    assert len(versions) == 1


def test_follows_functions_of_checks_and_mappings(tmp_path: Path) -> None:
    text = """
        from servo import Daily, asset, check, mapping
        import helpers
        days = Daily("date", start="2025-01-01")
        @asset(partitions=days)
        def source(): ...
        @asset(partitions=days, checks=[check.function(helpers.fine)], deps={"source": mapping.Custom(helpers.same)})
        def f(source): ...
    """
    helpers = """
        def limit(): return {x}
        def fine(df): return df.count() > limit()
        def picked(asked, upstream): return upstream.set_of(list(asked)[:{y}])
        def same(asked, upstream): return picked(asked, upstream)
    """

    def made(x: int, y: int) -> AssetSpec:
        write(tmp_path, definitions=text, helpers=helpers.format(x=x, y=y))
        return spec(tmp_path)

    first, check_changed, mapping_changed = made(1, 1), made(2, 1), made(1, 2)
    assert len({first.code_version, check_changed.code_version, mapping_changed.code_version}) == 3
    assert changed_code(first.reached, check_changed.reached) == ["helpers.limit in helpers.py"]
    assert changed_code(first.reached, mapping_changed.reached) == ["helpers.picked in helpers.py"]
    codes = [one.dependencies[0].mapping.to_json()["code"] for one in (first, check_changed, mapping_changed)]  # type: ignore[union-attr]
    assert codes[0] == codes[1] != codes[2]


def test_names_what_changed(tmp_path: Path) -> None:
    def made(x: int, own: str = "1", more: str = "") -> AssetSpec:
        helpers = f"LIMIT = {x}\ndef clean(o):\n    return o + LIMIT{more}\nEXTRA = 3\n"
        return project(
            tmp_path, imports="from helpers import clean", body=f"return clean(orders) + {own}", helpers=helpers
        )

    first = made(1)
    assert sorted(first.reached) == ["@asset", "definitions.py:@function", "helpers.py:LIMIT", "helpers.py:clean"]
    assert changed_code(first.reached, made(2).reached) == ["helpers.LIMIT in helpers.py"]
    assert changed_code(first.reached, made(1, own="2").reached) == ["its function in definitions.py"]
    assert changed_code(first.reached, made(1, more=" + EXTRA").reached) == [
        "helpers.EXTRA in helpers.py is new",
        "helpers.clean in helpers.py",
    ]
    assert changed_code({}, first.reached) == []


def test_a_given_version_wins(tmp_path: Path) -> None:
    for x in (1, 2):
        write(tmp_path, definitions=f'from servo import asset\nN = {x}\n@asset(code_version="7")\ndef f(): return N\n')
        made = spec(tmp_path)
        assert (made.code_version, made.reached, made.first_version) == ("7", {}, None)


LOADING = """
    import sys
    from pathlib import Path
    from types import SimpleNamespace
    from servo.assets.loading import load
    root = Path(sys.argv[1])
    if sys.argv[2] == "early":
        sys.path.insert(0, str(root))
        import late, helpers
    place = SimpleNamespace(root=root, definitions=None, namespace="shop")
    print(load(place).assets["shop/f"].spec.code_version)
"""


def version_in_another_process(root: Path, seed: int, order: str = "late") -> str:
    answer = subprocess.run(
        [sys.executable, "-c", dedent(LOADING), str(root), order],
        env={"PYTHONHASHSEED": str(seed), "PATH": "", "PYTHONPATH": SOURCE},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return answer.stdout.strip()


def test_is_the_same_in_every_process_and_whatever_was_imported_before(tmp_path: Path) -> None:
    made = project(
        tmp_path,
        imports="from helpers import NAMES, clean",
        body="import late; return clean(orders), NAMES, late.N",
        helpers="NAMES = {'a', 'b', 'c'}\ndef clean(o, names=frozenset({'x', 'y', 'z'})): return o\n",
        late="N = 1\n",
    )
    for seed, order in ((1, "late"), (2, "early")):
        assert version_in_another_process(tmp_path, seed, order) == made.code_version


def test_is_the_same_whatever_the_order_of_sets_and_the_addresses_of_objects(tmp_path: Path) -> None:
    text = """
        from datetime import datetime, tzinfo
        from servo import asset
        class Zone(tzinfo):
            def utcoffset(self, at): return None
        class Node:
            def __init__(self, name): self.name, self.near = name, set()
            def __hash__(self): return hash(self.name)
        def adder(n):
            def add(o): return o + n
            return add
        def around(n):
            def even(o): return o == n or odd(o - 1)
            def odd(o): return even(o - 1)
            return even, odd
        def make(adders, by_name, nodes, zone):
            seen = {f: name for name, f in by_name.items()}
            @asset
            def f(): return adders, by_name, nodes, seen, zone
        names = {"a", "b", "c", "d", "e"}
        nodes = {Node(name) for name in names}
        for one in nodes:
            one.near = {other for other in nodes if other.name != one.name}
        adders = {adder(n) for n in "vwxyz"} | set(around(1)) | set(around(2))
        make(adders, {name: adder(name) for name in names}, nodes, [Zone(), datetime(2025, 1, 1, tzinfo=Zone())])
    """
    write(tmp_path, definitions=text)
    assert len({spec(tmp_path).code_version, *(version_in_another_process(tmp_path, seed) for seed in range(4))}) == 1


def test_a_helper_imported_late_is_loaded_anew(tmp_path: Path) -> None:
    body = "from helpers import N; return N"
    project(tmp_path, body=body, helpers="N = 1\n")
    asset = load(Place(tmp_path)).assets["shop/f"]
    sys.path.insert(0, str(tmp_path))
    try:
        assert asset(None) == 1
        write(tmp_path, helpers="N = 22\n")
        definitions = load(Place(tmp_path))
        assert tmp_path / "helpers.py" in definitions.files
        assert definitions.assets["shop/f"](None) == 22
    finally:
        sys.path.remove(str(tmp_path))


def test_files_that_cannot_be_read_count_as_they_are(tmp_path: Path) -> None:
    def version(text: str) -> str:
        return project(tmp_path, body="import broken; return broken.x(orders)", broken=text).code_version

    assert version("def x(:\n") != version("def y(:\n")


def test_long_chains_of_calls(tmp_path: Path) -> None:
    def version(last: int) -> str:
        chain = "".join(f".withColumn('c{n}', {n})" for n in range(600)) + f".limit({last})"
        helpers = f"N = 1\ndef clean(o):\n    return o{chain}\n"
        return project(
            tmp_path, imports="import helpers", body="return helpers.clean(orders)", helpers=helpers
        ).code_version

    assert version(1) != version(2)
