"""What the README shows works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_python_example_records_and_reads(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    script = f"{example}\nprint(len(receipts), sorted(answer.rows))\n"
    expected = "1 [('date=d:2025-01-15', 'SUCCEEDED'), ('date=d:2025-01-16', 'SUCCEEDED')]"
    for _ in range(2):  # a reader will run it again
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1:] == [expected], done.stderr


def test_the_settings_example_is_understood(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "servo.toml").write_text(example)
    script = "from servo.runtime import load_settings; s = load_settings(); print(s.ledger, s.tenant, s.workspace)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "postgresql://servo@db/servo acme prod", done.stderr


def test_every_command_that_it_names_exists() -> None:
    for line in re.findall(r"\.venv/bin/servo ([a-z ]+?)(?: [\"\-#]|\s*#|$)", README.read_text(), re.MULTILINE):
        words = [*line.split(), "--help"]
        done = subprocess.run([sys.executable, "-m", "servo", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
