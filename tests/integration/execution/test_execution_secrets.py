"""What Spark is told: all of it reaches the session, and nothing that lets somebody in the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

CONF = {
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "hunter2-key",
    "spark.my.credential": "hunter2-credential",
    "spark.my.jdbc.url": "postgresql://me:hunter2-url@host/db",
    "spark.hadoop.fs.s3a.secret.key": "hunter2-secret",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.warehouse.dir": "file:/tmp/servo-test-warehouse",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-Dservo.test=here",
}

_CHILD = """
    import json, sys
    from pathlib import Path
    from pyspark import SparkContext
    from servo.execution.spark import SparkSettings, session

    conf = json.load(sys.stdin)
    with session(SparkSettings(master="local[1]", conf=conf)) as spark:
        java = Path("/proc", str(SparkContext._gateway.proc.pid), "cmdline").read_bytes().decode()
        known = {name: spark.sparkContext.getConf().get(name) for name in conf}
        runtime = spark._jvm.java.lang
        print(json.dumps({
            "cmdline": java,
            "known": known,
            "hadoop": spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
            "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
            "heap": runtime.Runtime.getRuntime().maxMemory(),
            "property": runtime.System.getProperty("servo.test"),
        }))
"""


def test_the_session_knows_all_settings_and_the_command_line_no_secret() -> None:
    # By its input: the settings are not on the command line of the child either.
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_CHILD)],
        input=json.dumps(CONF),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stderr == "", "a start is silent"
    said = json.loads(child.stdout)
    assert "java" in said["cmdline"]
    assert "hunter2" not in said["cmdline"]
    java_options = "spark.driver.extraJavaOptions"  # Spark puts its own before them
    assert said["known"] == CONF | {java_options: said["known"][java_options]}
    assert said["hadoop"] == "hunter2-secret"
    assert said["shuffle"] == "7"
    assert said["heap"] < 800 << 20
    assert said["property"] == "here"
