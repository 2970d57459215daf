"""The tests that docs/promises.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_a_promise_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "promises.md").read_text())
    assert len(named) > 20
    for file, function in named:
        assert re.search(rf"^def {function}" if function else "^def test_", (ROOT / file).read_text(), re.MULTILINE), (
            f"{file} has no {function or 'test'}"
        )
