"""A project that asks for a Spark session when it is imported gets one with the settings of servo.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.support import Folder

SETTINGS = """
namespace = "shop"

[spark]
master = "local[1]"

[spark.conf]
"spark.sql.shuffle.partitions" = "3"
"""
DEFINITIONS = """
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from servo import asset

{session}


@asset
def told(context) -> DataFrame:
    used = {used}
    facts = [used.sparkContext.master, used.conf.get("spark.sql.shuffle.partitions")]
    shown = [f"'{{fact}}' AS c{{number}}" for number, fact in enumerate(facts)]
    return used.sql(f"SELECT current_timezone() AS zone, {{', '.join(shown)}}")
"""


@pytest.mark.parametrize(
    ("session", "used"),
    [
        ('spark = SparkSession.builder.appName("shop").getOrCreate()', "spark"),
        ("SparkContext.getOrCreate()", "context.spark"),
    ],
)
def test_a_session_of_the_project_has_the_settings_of_the_project(tmp_path: Path, session: str, used: str) -> None:
    shop = Folder(tmp_path, variables={"TZ": "America/New_York"})
    (tmp_path / "servo.toml").write_text(SETTINGS)
    (tmp_path / "definitions.py").write_text(DEFINITIONS.format(session=session, used=used))
    made = shop.servo("materialize", "told")
    assert made.returncode == 0, made
    read = shop.servo("read", "told", "--json")
    assert json.loads(read.stdout)["rows"] == [["UTC", "local[1]", "3"]], read
