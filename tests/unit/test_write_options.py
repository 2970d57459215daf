"""What Spark is told when it writes."""

from __future__ import annotations

import pytest

from servo.execution.work import write_options


def test_only_a_local_disk_is_written_without_checksum_files() -> None:
    local = write_options("file:///lake/x")
    assert local["fs.file.impl"] == "org.apache.hadoop.fs.RawLocalFileSystem"
    assert local["parquet.page.write-checksum.enabled"] == "true"


@pytest.mark.parametrize("address", ["s3a://lake/x", "hdfs://host/x", "abfss://lake@account/x"])
def test_other_file_systems_keep_their_own_local_one(address: str) -> None:
    assert not [name for name in write_options(address) if name.startswith("fs.")]
