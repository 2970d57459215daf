"""`servo deploy`, and a running `servo up` whose files change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.support import Folder

ASSET = "import servo\nfrom servo import asset\n\n@asset\ndef orders(context): ...\n"
RENAMED = ASSET.replace("@asset\ndef orders", '@asset(renamed_from="orders")\ndef orders_clean')
NIGHTLY = 'nightly = servo.Schedule("nightly", cron="0 6 * * *", select="orders")\n'


def write(path: Path, text: str) -> None:
    part = path / ".part"
    part.write_text(text)
    part.replace(path / "definitions.py")


def test_definitions_take_effect_once(tmp_path: Path) -> None:
    shop = Folder(tmp_path)
    (tmp_path / "servo.toml").write_text('namespace = "shop"\n')
    write(tmp_path, ASSET)
    first = shop.json("deploy")
    assert (first["changed"], first["assets"], first["added"]) == (True, 1, ["shop/orders"])
    assert shop.json("deploy")["changed"] is False
    write(tmp_path, ASSET + NIGHTLY)
    again = shop.json("deploy")
    assert (again["changed"], again["schedules"], again["number"]) == (True, 1, 2)
    write(tmp_path, "oops")
    assert "oops" in shop.fails(2, "deploy")
    # What it does to history is said by check and plan beforehand, and by deploy.
    write(tmp_path, RENAMED)
    said = "renamed shop/orders → shop/orders_clean, nothing was made of it yet"
    assert f"deploying it: {said}" in shop.ok("check")
    assert shop.json("check")["changes"][0]["sentence"] == said
    assert f"deploys first: {said}" in shop.ok("plan", "orders_clean")
    assert shop.json("plan", "orders_clean")["history"] == [said]
    assert shop.ok("deploy").splitlines()[0].strip() == said
    assert "deploying it" not in shop.ok("check")
    assert "changes" not in shop.json("check")
    # A command that deploys on its way says it as well.
    write(tmp_path, ASSET)
    asked = shop.servo("materialize", "orders", "--no-wait")
    assert asked.returncode == 0, asked
    assert asked.stderr.splitlines()[0] == (
        "servo: warning: deploying: renamed shop/orders_clean → shop/orders, nothing was made of it yet"
    )


def test_a_running_server_deploys_what_changes_and_says_what_it_cannot(tmp_path: Path) -> None:
    shop = Folder(tmp_path)
    (tmp_path / "servo.toml").write_text('namespace = "shop"\n')
    write(tmp_path, ASSET)
    said = tmp_path / "said.log"
    with said.open("wb") as sink:
        up = subprocess.Popen(
            [sys.executable, "-m", "servo", "up", "--workers", "0", "--port", "0"],
            cwd=tmp_path, env={**os.environ, **shop.environment()}, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
        )  # fmt: skip

    def until(happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 60
        while not happened():
            assert up.poll() is None, said.read_text()
            assert time.monotonic() < deadline, (what, said.read_text())
            time.sleep(0.3)

    def schedules() -> list[str]:
        rows = shop.json("query", "SELECT name FROM schedule_definitions WHERE deleted_at IS NULL ORDER BY name")
        return [name for (name,) in rows["rows"]]

    try:
        until(lambda: "up at" in said.read_text(), "it is up")
        write(tmp_path, ASSET + NIGHTLY)
        until(lambda: schedules() == ["nightly"], "it is deployed")
        write(tmp_path, "half a fi")
        until(lambda: "was not deployed" in said.read_text(), "what is wrong is said")
        assert schedules() == ["nightly"]
        write(tmp_path, ASSET)
        until(lambda: schedules() == [], "what is gone from the code is gone")
        # Another branch, and back: the same asset again.
        assets = "SELECT asset_id, asset_key FROM asset_definitions WHERE removed_at IS NULL"
        [[first, _]] = shop.rows(assets)
        for name, text in (("orders_clean", RENAMED), ("orders", ASSET)) * 2:
            write(tmp_path, text)
            until(lambda name=name: shop.rows(assets) == [[first, f"shop/{name}"]], f"it is called {name}")
            until(lambda name=name: f"→ shop/{name}" in said.read_text(), "it is said")
        assert shop.rows("SELECT count(*) FROM asset_definitions") == [[1]]
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(600) in (0, 143, -15), said.read_text()
