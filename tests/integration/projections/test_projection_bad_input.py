"""Projections that are damaged, foreign, closed to us or on a full disk: one clear line, and a replay mends it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from servo.errors import (
    ProjectionDamaged,
    ProjectionError,
    ProjectionMissing,
    SchemaTooNew,
    ServoError,
    StorageFailed,
)
from servo.events import Proposal, UnknownEvent, decode
from servo.events.fact import Fact
from servo.fold import TABLES
from servo.ledger.verify import verify
from servo.projections import Manifest
from servo.projections.manifest import encode
from tests.integration.projection_support import (
    NOW,
    WORKSPACE,
    Place,
    assert_same,
    cancels,
    finished,
    mixed,
    rows_of,
    rows_of_fold,
    whole,
)

ROOT = Path(__file__).parents[3]
KEYS = [f"date=d:2024-01-{day:02d}" for day in range(1, 29)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Two versions, the second with a file on top of the first's."""
    place = Place(tmp_path)
    with place.compactor() as compactor:
        place.ledger.append([*cancels(60, "a"), finished(1, KEYS, place.mint_text)])
        compactor.compact()
        place.ledger.append(cancels(2, "b"))
        compactor.compact()
    yield place
    place.close()


def refused(place: Place, *attempts: Callable[[], object], names: Path | str | None = None) -> list[ServoError]:
    """Each attempt ends in one line that names what is wrong and how to rebuild it."""
    found = []
    for attempt in attempts:
        with pytest.raises(ServoError) as problem:
            attempt()
        text = str(problem.value)
        assert "\n" not in text
        if names is not None:
            assert str(names) in text
        found.append(problem.value)
    assert verify(place.history).problems == [], "the ledger is not affected"
    return found


def rebuildable(problems: list[ServoError]) -> None:
    for problem in problems:
        assert isinstance(problem, ProjectionError | SchemaTooNew)
        assert "servo ledger replay" in str(problem)


def mended(place: Place) -> None:
    """A replay gives back everything, to reads, to compaction and to the past alike."""
    manifest = place.replay()
    whole(place.store, manifest)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
    place.ledger.append(cancels(3, f"after-{manifest.version}-"))
    assert place.compact().watermark.position == place.ledger.head().position
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
    for position in {1, min(62, manifest.watermark.position), manifest.watermark.position}:
        past = place.reader().snapshot(as_of=place.events()[position - 1].event_id)
        assert_same(rows_of(past), rows_of_fold(place.fold(position)))
    assert verify(place.history).problems == []


def read_all(place: Place) -> Callable[[], object]:
    return lambda: rows_of(place.reader().snapshot())


def largest(place: Place, table: str) -> Path:
    return place.store.path(table, place.store.current().tables[table][0])


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def flip(path: Path) -> None:
    """Change the data and leave the footer, which is what a reader looks at first."""
    data = bytearray(path.read_bytes())
    for index in range(4, len(data) // 3):
        data[index] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, truncate, empty, Path.unlink], ids=["flipped", "cut", "empty", "missing"])
def test_a_damaged_file(place: Place, damage: Callable[[Path], None]) -> None:
    path = largest(place, "runs")
    damage(path)
    rebuildable(refused(place, read_all(place), names=path))
    # Other tables of the same version are as good as before.
    answer = place.reader().query("SELECT count(*) FROM partition_status")
    assert (answer.rows, answer.watermark.position) == ([(28,)], 63)
    mended(place)


def test_compaction_over_a_damaged_file(place: Place) -> None:
    """Where the file has to be merged, it is met by the compactor; the current version stays the current one."""
    path, current = largest(place, "runs"), place.store.current()
    flip(path)
    place.ledger.append(cancels(60, "c"))
    rebuildable(refused(place, place.compact, names=path))
    assert place.store.current() == current
    mended(place)


# ── manifests, pointer, epoch ────────────────────────────────────────────────────────────────────────────────────


def manifest_path(place: Place) -> Path:
    return place.store.root / "manifests" / json.loads((place.store.root / "CURRENT").read_text())["manifest"]


@pytest.mark.parametrize("content", [b"", b"{", b"garbage", b"\xff\x00", b'{"format": 1}', b"[]", None])
def test_a_damaged_manifest(place: Place, content: bytes | None) -> None:
    path = manifest_path(place)
    if content is None:
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.write_bytes(content)
    rebuildable(refused(place, read_all(place), place.compact, names=path))
    mended(place)


def test_a_missing_manifest(place: Place) -> None:
    path = manifest_path(place)
    path.unlink()
    rebuildable(refused(place, read_all(place), place.compact, names=path))
    mended(place)


def test_a_changed_manifest(place: Place) -> None:
    """Well-formed, and not what was published."""
    path = manifest_path(place)
    path.write_bytes(path.read_bytes().replace(b'"position": 63', b'"position": 62'))
    rebuildable(refused(place, read_all(place), place.compact, names=path))
    mended(place)


def test_a_manifest_of_a_newer_servo(place: Place) -> None:
    path = manifest_path(place)
    path.write_bytes(encode(msgspec.structs.replace(place.store.current(), format=9)))
    problems = refused(place, read_all(place), place.compact, names=path)
    assert all(isinstance(problem, SchemaTooNew) for problem in problems)
    rebuildable(problems)
    assert "upgrade" in str(problems[0])
    mended(place)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[1]", b'{"manifest": "x"}', b'{"manifest": "x.json", "sha256": "0"}']
)
def test_a_damaged_pointer(place: Place, content: bytes) -> None:
    (place.store.root / "CURRENT").write_bytes(content)
    rebuildable(refused(place, read_all(place), place.compact, names=place.store.root))
    mended(place)


# All bits of every byte where the variable is set, which takes minutes; else some of them, never the same for all.
EVERY_BIT = bool(os.environ.get("SERVO_EVERY_BIT"))


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Each byte with bits flipped, with the highest bit (no longer UTF-8) always; cut off at each; emptied; doubled."""
    for index, byte in enumerate(data):
        for bit in range(8) if EVERY_BIT else {7, index % 7}:
            yield f"bit {bit} of byte {index}", data[:index] + bytes([byte ^ 1 << bit]) + data[index + 1 :]
        yield f"cut at byte {index}", data[:index]
    yield "zeroed", bytes(len(data))
    yield "doubled", data * 2


def test_every_byte_of_pointer_and_manifests(place: Place) -> None:
    """Whatever is changed, a read gives what was published or one line about a replay; and so do reads of the past.

    The rows of a version follow from its manifest, and its files have checksums of their own: manifests are compared.
    """
    root = place.store.root
    current, versions = place.store.current(), place.store.versions()
    assert [version.version for version in versions] == [1, 2]
    told = passed_over = 0
    found: tuple[Manifest, list[Manifest]] | ServoError
    for path in (root / "CURRENT", *sorted((root / "manifests").iterdir())):
        data = path.read_bytes()
        for what, content in damages(data):
            path.write_bytes(content)
            try:
                found = (place.store.current(), place.store.versions())
            except ServoError as problem:
                found = problem
            if isinstance(found, ServoError):
                told += 1
                assert isinstance(found, ProjectionDamaged | ProjectionMissing), (path, what, found)
                assert "\n" not in str(found), (path, what)
                assert str(root) in str(found), (path, what)
                assert "servo ledger replay" in str(found), (path, what)
            else:
                assert found[0] == current, (path, what)
                assert current in found[1], (path, what)
                assert [one for one in found[1] if one not in versions] == [], (path, what)
                passed_over += len(versions) - len(found[1])
        path.write_bytes(data)
    assert told > 1_000, "of what every read needs"
    assert passed_over > 1_000, "of what only reads of the past would have used"


def test_a_replay_mends_any_byte_of_pointer_and_manifests(place: Place, tmp_path: Path) -> None:
    root = place.store.root
    backup = tmp_path / "backup"
    shutil.copytree(root, backup)
    for name in ("CURRENT", *(f"manifests/{path.name}" for path in sorted((backup / "manifests").iterdir()))):
        found = list(damages((backup / name).read_bytes()))
        for what, content in found if EVERY_BIT else found[:: max(len(found) // 6, 1)]:
            shutil.rmtree(root)
            shutil.copytree(backup, root)
            (root / name).write_bytes(content)
            manifest = place.replay()
            assert manifest.version == 3, (name, what)
            assert place.store.current() == manifest, (name, what)
            for number, version in enumerate(place.store.versions(), start=3):
                assert version.version == number, "those from before the replay are not asked any more"
            assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
    mended(place)


def test_manifests_without_a_checksum_are_read_as_before(place: Place) -> None:
    """As an older Servo wrote them. The pointer proves the current one; reads of the past do without the others."""
    current = place.store.current()
    for path in sorted((place.store.root / "manifests").iterdir()):
        fields = json.loads(path.read_bytes())
        del fields["checksum"]
        path.write_text(json.dumps(fields))
    pointer = {"manifest": path.name, "sha256": sha256(path.read_bytes()).hexdigest()}
    (place.store.root / "CURRENT").write_text(json.dumps(pointer))
    assert place.store.current() == current
    assert place.store.versions() == [current]
    for position in (1, 61, 62, 63):
        past = place.reader().snapshot(as_of=place.events()[position - 1].event_id)
        assert_same(rows_of(past), rows_of_fold(place.fold(position)))
    place.ledger.append(cancels(3, "later"))
    assert place.compact().version == 3
    assert [version.version for version in place.store.versions()] == [3]
    assert len(list((place.store.root / "manifests").iterdir())) == 3, "and they are kept as long as any other"
    mended(place)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe", b"-", b"1\n2", b"0", b"1"])
def test_a_damaged_epoch(place: Place, content: bytes) -> None:
    """Only the order of epochs matters, and the manifests know it: nobody needs to be told."""
    before = place.store.current()
    (place.store.root / "EPOCH").write_bytes(content)
    rows_of(place.reader().snapshot())
    place.ledger.append(cancels(1, "c"))
    assert place.compact().epoch > before.epoch
    mended(place)


# ── another ledger ───────────────────────────────────────────────────────────────────────────────────────────────


def replaced(place: Place, proposals: list[Proposal]) -> Place:
    """The same folder with a new ledger, beside the projections of the old one."""
    place.close()
    for path in place.folder.glob("ledger.db*"):
        path.unlink()
    other = Place(place.folder)
    other.ledger.append(proposals)
    return other


@pytest.mark.parametrize("count", [10, 63, 500], ids=["shorter", "as long", "longer"])
def test_the_ledger_was_replaced(place: Place, count: int) -> None:
    other = replaced(place, cancels(count, "other"))
    problems = refused(
        other,
        read_all(other),
        lambda: other.reader().snapshot(fresh=True),
        lambda: other.reader().snapshot(wait_for_event_id=other.events()[5].event_id),
        other.compact,
        names=other.store.root,
    )
    assert all(isinstance(problem, ProjectionDamaged) for problem in problems)
    rebuildable(problems)
    mended(other)
    other.close()


def test_the_ledger_was_set_back_and_went_on(place: Place, tmp_path: Path) -> None:
    """A copy of an older ledger that has grown past the projections: the same beginning, another story."""
    copy = tmp_path / "copy"
    older = Place(copy)
    older.ledger.append(cancels(20, "x"))
    older.close()
    shutil.copytree(copy, tmp_path / "backup")
    older.ledger.append(cancels(20, "lost"))
    older.compact()
    older.close()
    for path in copy.glob("ledger.db*"):
        path.unlink()
    shutil.copytree(tmp_path / "backup", copy, dirs_exist_ok=True)
    back = Place(copy)
    back.ledger.append(cancels(50, "instead"))
    rebuildable(refused(back, read_all(back), back.compact, names=back.store.root))
    mended(back)
    back.close()


# ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────────

ATTEMPT = """
import sys
from pathlib import Path
from servo.errors import ServoError
from tests.integration.projection_support import Place
place = Place(Path(sys.argv[1]))
print(place.reader().query("SELECT count(*) FROM runs").rows[0][0])
for attempt in (place.compact, place.replay):
    try:
        attempt()
        print("done")
    except ServoError as problem:
        print(type(problem).__name__, problem)
print(place.reader().query("SELECT count(*) FROM runs").rows[0][0])
"""


def attempt_in(place: Place, prepare: str, limit: Callable[[], None] | None = None) -> list[str]:
    """Read, compact, replay and read again in a process of its own; what it said, line by line."""
    place.close()
    python = f'exec "{sys.executable}" -c "$0" "$1"'
    command = ["sh", "-ec", f"{prepare}\n{python}", ATTEMPT, str(place.folder)]
    if prepare and os.geteuid() == 0:
        # A mount in a namespace of its own is gone with its process, whatever happens to the test.
        command = ["unshare", "--mount", "--propagation", "private", *command]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def storage_said(place: Place, lines: list[str]) -> None:
    before, compacted, replayed, after = lines
    assert before == after == "83", "the last version stays readable, and so does the tail"
    for line in (compacted, replayed):
        assert line.startswith(f"{StorageFailed.__name__} "), line
        assert str(place.store.root) in line
        assert "stays readable" in line


def test_a_read_only_folder(place: Place) -> None:
    place.ledger.append(cancels(21, "more"))
    current = place.store.current()
    root = place.store.root
    if os.geteuid() == 0:  # root may write anywhere but on a read-only mount
        lines = attempt_in(place, f'mount --bind "{root}" "{root}"; mount -o remount,ro,bind "{root}"')
    else:
        lines = attempt_in(place, f'find "{root}" -exec chmod a-w {{}} +')
        subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
    storage_said(place, lines)
    assert place.store.current() == current
    mended(place)


def test_a_full_disk(place: Place) -> None:
    """No file may grow beyond what SQLite needs to read: what is there is read, what is new does not fit."""
    keys = [f"shard=i:{number}" for number in range(3_000)]
    hashes = [sha256(key.encode()).hexdigest() for key in keys]
    place.ledger.append([*cancels(21, "more"), finished(2, keys, place.mint_text, hashes=hashes)])
    current = place.store.current()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    lines = attempt_in(place, "", limit)
    storage_said(place, lines)
    assert place.store.current() == current
    mended(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk; the limit above stands for it")
def test_a_really_full_disk(place: Place) -> None:
    place.ledger.append([*cancels(21, "more"), *mixed(300)])
    root, current = place.store.root, place.store.current()
    copy = place.folder / "copy"
    shutil.copytree(root, copy)
    lines = attempt_in(
        place,
        f'mount -t tmpfs -o size=256k none "{root}"; cp -r "{copy}/." "{root}";'
        f' head -c 1000000 /dev/zero > "{root}/filler" 2>/dev/null || true',
    )
    before, compacted, replayed, after = lines
    assert before == after
    for line in (compacted, replayed):
        assert line.startswith(f"{StorageFailed.__name__} "), line
        assert "stays readable" in line
    assert place.store.current() == current
    mended(place)


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.ledger.append(cancels(3))
    place.store.root.write_text("x")
    [problem] = refused(place, place.compact, names=place.store.root)
    assert isinstance(problem, StorageFailed)
    place.close()


# ── events of a newer Servo ──────────────────────────────────────────────────────────────────────────────────────


class Foretold(Fact, frozen=True, kw_only=True):
    """A fact that no Servo knows yet."""

    event_type: ClassVar[str] = "Foretold"
    event_version: ClassVar[int] = 3
    key: ClassVar[str] = "foretold:{self.what}"
    subject: ClassVar[str] = "what"

    what: str


def test_an_unknown_event_is_kept_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    unknown = Proposal(fact=Foretold(what="rain"), occurred_at=NOW, actor="tomorrow")
    proposals = mixed(60)
    place.ledger.append([*proposals[:30], unknown, *proposals[30:]])
    manifest = place.compact()
    assert manifest.watermark.position == 61
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "Foretold version 3" in warning.getMessage()
    assert warning.__dict__["action"] == "fold.unknown_event"
    event = place.events()[30]
    assert (event.event_type, event.event_version, event.payload) == ("Foretold", 3, b'{"what":"rain"}')
    assert isinstance(decode(event), UnknownEvent)
    known = [event for event in place.events() if event.event_type != "Foretold"]
    assert len(known) == 60
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
    assert sum(map(len, rows_of(place.reader().snapshot()).values())) > 100
    # In the tail, and alone in it, likewise.
    place.ledger.append([Proposal(fact=Foretold(what="snow"), occurred_at=NOW, actor="tomorrow")])
    snapshot = place.reader().snapshot(fresh=True)
    assert snapshot.watermark.position == 62
    assert_same(rows_of(snapshot), rows_of_fold(place.fold()))
    assert place.compact().watermark.position == 62
    assert verify(place.history).problems == []
    place.close()


def test_a_workspace_without_projections_has_empty_tables(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.store.current() == Manifest()
    assert rows_of(place.reader().snapshot()) == {table.table: [] for table in TABLES}
    assert not place.store.root.exists(), "reading makes nothing"
    assert place.history.archive is not None
    assert place.history.archive.workspace == WORKSPACE
    place.close()
