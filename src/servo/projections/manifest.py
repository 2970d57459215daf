"""What a version of the projections consists of. Written once, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidCanonicalValue, ProjectionDamaged, SchemaTooNew
from servo.events import GENESIS, RecordedEvent

FORMAT = 1
# Counts up whenever the fold says more than it did: a table or a column more. A version that was folded by less is
# not read, for what it lacks looks like nothing at all; its events are folded again.
FOLD = 10
# Rows in one group of a file. Small, so that one partition is found by reading a few of many.
ROW_GROUP = 32_768
REBUILD = "rebuild the projections with `servo ledger replay`; the ledger is not affected"


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the ledger is folded in."""

    position: int = 0
    event_id: str | None = None
    occurred_at: datetime | None = None
    chain_hash: str = GENESIS


def watermark_of(event: RecordedEvent | None) -> Watermark:
    """The watermark of a state whose newest event this is."""
    if event is None:
        return Watermark()
    return Watermark(
        position=event.position,
        event_id=event.event_id,
        occurred_at=event.occurred_at,
        chain_hash=event.chain_hash,
    )


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file of a table."""

    name: str
    rows: int
    bytes: int
    sha256: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A version: for each table its files, oldest and largest first, and the watermark they all share.

    `replayed` is the version that the last replay made; those before it may be what the replay was needed for.
    `fold` is which fold made it; versions of before it was counted do not say.
    """

    version: int = 0
    epoch: int = 0
    watermark: Watermark = Watermark()
    tables: dict[str, list[FileRef]] = {}
    created_at: datetime | None = None
    replayed: int = 0
    format: int = FORMAT
    fold: int = 1

    @property
    def is_complete(self) -> bool:
        """Whether it says all that the fold of today says of its events."""
        return self.fold >= FOLD


_CHECKSUM = "checksum"
_FIELDS = frozenset(Manifest.__struct_fields__)


class _Format(msgspec.Struct):
    format: int


def seal(value: msgspec.Struct) -> bytes:
    """Encode a struct as JSON, with a checksum over all of its fields."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return msgspec.json.format(msgspec.json.encode(fields | {_CHECKSUM: canonical.sha256_hex(fields)}), indent=1)


def is_sealed(data: bytes) -> bool:
    """Whether a JSON text has a checksum. Raises ValueError where it has one that does not fit, or is no JSON object.

    The checksum is over all fields that are written, so that it also fits where a newer Servo wrote more of them.
    """
    try:
        fields = decoders.decode(data, dict[str, Any])
        checksum = fields.pop(_CHECKSUM, None)
        if checksum is None:
            return False
        actual = canonical.sha256_hex(fields)
    except (msgspec.MsgspecError, InvalidCanonicalValue) as problem:
        raise ValueError(str(problem)) from problem
    if checksum != actual:
        raise ValueError("its content and its checksum do not fit together")
    return True


def encode(manifest: Manifest) -> bytes:
    return seal(manifest)


def decode(data: bytes, name: str, *, sealed: bool = False) -> Manifest:
    """Read a manifest strictly: whatever is wrong with it is one clear error.

    Manifests of older versions of Servo have no checksum; `sealed` refuses those too.
    """
    try:
        has_checksum = is_sealed(data)
        written = decoders.decode(data, _Format).format
        if written > FORMAT:
            raise SchemaTooNew(
                f"projection manifest {name} has format {written}, this Servo knows {FORMAT}",
                hint="upgrade Servo, or throw the projections away and " + REBUILD,
            )
        if not has_checksum and (sealed or decoders.decode(data, dict[str, Any]).keys() - _FIELDS):
            raise ValueError("it has no checksum")
        return decoders.decode(data, Manifest)
    except ValueError as problem:  # msgspec's errors are ValueErrors too
        raise ProjectionDamaged(f"projection manifest {name} is damaged: {problem}", hint=REBUILD) from problem
