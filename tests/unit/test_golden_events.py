"""What was written once can be read for ever: each version of each fact has a file that is never edited."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servo import canonical
from servo.events import EVENT_CLASSES, UnknownEvent, decode, encode
from servo.events.fact import Fact
from tests.support.examples import EXAMPLES
from tests.support.recording import recorded, said

FOLDER = Path(__file__).parent / "golden_events"
SUMS = FOLDER / "SHA256SUMS"
FILES = sorted(FOLDER.glob("*.json"))


def document(fact: Fact) -> bytes:
    """A golden file's content."""
    return canonical.dumps(
        {
            "event_type": fact.event_type,
            "event_version": fact.event_version,
            "idempotency_key": fact.idempotency_key,
            "correlation": fact.correlation,
            "payload": canonical.loads(encode(fact)),
        }
    )


def test_every_version_of_every_fact_has_a_file() -> None:
    versions = {
        f"{kind.event_type}.v{version}" for kind in EVENT_CLASSES for version in range(1, kind.event_version + 1)
    }
    assert versions <= {file.stem for file in FILES}
    missing = [
        f"write {name}.json: {document(fact).decode()}" for name, fact in EXAMPLES.items() if not _file(name).is_file()
    ]
    assert not missing, "\n".join(missing)


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_file_reads_as_it_always_did(file: Path) -> None:
    golden = canonical.loads(file.read_bytes())
    expected = EXAMPLES[file.stem]
    kind, version = file.stem.split(".")[:2]
    assert (golden["event_type"], f"v{golden['event_version']}") == (kind, version)
    payload = canonical.dumps(golden["payload"])
    [event] = recorded(said(expected))
    stored = msgspec.structs.replace(event, event_version=golden["event_version"], payload=payload)
    fact = decode(stored)
    assert not isinstance(fact, UnknownEvent)
    assert fact == expected
    assert fact.idempotency_key == golden["idempotency_key"]
    assert fact.correlation == golden["correlation"]
    if golden["event_version"] == expected.event_version:
        assert encode(fact) == payload


def test_golden_files_are_never_edited() -> None:
    """A file may be added, with its line in SHA256SUMS; a fact that changed needs a new version instead."""
    sums = {name: digest for digest, name in (line.split("  ") for line in SUMS.read_text().splitlines())}
    assert {file.name: sha256(file.read_bytes()).hexdigest() for file in FILES} == sums


@pytest.mark.parametrize("kind", EVENT_CLASSES, ids=lambda kind: kind.event_type)
def test_examples_leave_no_field_at_its_default(kind: type[Fact]) -> None:
    """So that every field of the newest version is in one golden file or another, by its name."""
    unseen = _fields(kind)
    for fact in EXAMPLES.values():
        if isinstance(fact, kind):
            unseen -= _set_fields(fact)
    assert not unseen


def _fields(kind: Any) -> set[tuple[str, str]]:
    """Every (class, field) that a fact of this kind can hold."""
    info = msgspec.inspect.type_info(kind)
    found: set[tuple[str, str]] = set()
    _walk(info, found)
    return found


def _walk(info: Any, found: set[tuple[str, str]]) -> None:
    if isinstance(info, msgspec.inspect.StructType):
        for field in info.fields:
            found.add((info.cls.__name__, field.name))
            _walk(field.type, found)
    elif isinstance(info, msgspec.inspect.UnionType):
        for member in info.types:
            _walk(member, found)
    elif isinstance(info, msgspec.inspect.ListType):
        _walk(info.item_type, found)


def _set_fields(value: Any) -> set[tuple[str, str]]:
    if isinstance(value, list):
        return set().union(*map(_set_fields, value))
    if not isinstance(value, msgspec.Struct):
        return set()
    written = msgspec.to_builtins(value)
    inner = [_set_fields(getattr(value, name)) for name in value.__struct_fields__]
    return {(type(value).__name__, name) for name in written}.union(*inner)
