"""The tenant's secret: minted once, guarded, never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from servo.errors import InvalidSettings, StorageFailed
from servo.runtime.secrets import Secret, secret_path, tenant_secret
from servo.runtime.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(tmp_path, {})


def test_it_is_minted_once(settings: Settings) -> None:
    first = tenant_secret(settings, environ={})
    path = secret_path(settings)
    assert len(first.value) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert tenant_secret(settings, environ={}) == first
    assert [file.name for file in path.parent.iterdir()] == ["default.key"]


def test_each_tenant_has_its_own(tmp_path: Path) -> None:
    secrets = {tenant_secret(load_settings(tmp_path, {"SERVO_TENANT": name}), environ={}).value for name in "abc"}
    assert len(secrets) == 3


def test_who_comes_second_takes_the_first_ones(settings: Settings) -> None:
    def slow(count: int) -> bytes:
        if count == 32:  # another process is quicker, just now
            tenant_secret(settings, environ={}, random_bytes=lambda n: b"\1" * n)
        return b"\2" * count

    assert tenant_secret(settings, environ={}, random_bytes=slow).value == b"\1" * 32


def test_the_environment_gives_one(settings: Settings) -> None:
    assert tenant_secret(settings, environ={"SERVO_SECRET": "s3cret"}).value == b"s3cret"
    assert not settings.home.exists()
    for empty in ("", "  "):
        with pytest.raises(InvalidSettings, match="SERVO_SECRET is empty"):
            tenant_secret(settings, environ={"SERVO_SECRET": empty})


def test_a_file_that_others_can_read_is_refused(settings: Settings) -> None:
    value = tenant_secret(settings, environ={}).value.hex()
    path = secret_path(settings)
    for mode in (0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(InvalidSettings, match=f"chmod 600 {path}") as caught:
            tenant_secret(settings, environ={})
        assert value not in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n", "abcd", "zz" * 32, "ä" * 64])
def test_a_damaged_file_is_not_replaced(settings: Settings, content: str) -> None:
    path = secret_path(settings)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InvalidSettings, match="restore it from a copy") as caught:
        tenant_secret(settings, environ={})
    assert path.read_text() == content
    assert not content.strip() or content.strip() not in str(caught.value)


def test_a_disk_that_cannot_be_written_to(settings: Settings) -> None:
    settings.home.write_text("a file where a folder should be")
    with pytest.raises(StorageFailed, match="SERVO_SECRET"):
        tenant_secret(settings, environ={})


def test_it_never_shows_itself() -> None:
    secret = Secret(b"hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
