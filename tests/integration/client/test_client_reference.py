"""The examples of docs/reference/client.md, against a server: they run, and print what the page says."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.support.served import house

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client.md"
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", re.DOTALL)


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = EXAMPLE.findall(PAGE.read_text())
    assert len(examples) == 5
    assert sum(bool(printed) for _, printed in examples) == 4
    with house(tmp_path) as shop:
        monkeypatch.setenv("SERVO_URL", shop.served.url)
        place = {"servo": __import__("servo")}
        for code, printed in examples:
            said = io.StringIO()
            with redirect_stdout(said):
                exec(code.replace("http://127.0.0.1:8765", shop.served.url), place)
            assert said.getvalue(), code
            assert not printed or said.getvalue() == printed, code
