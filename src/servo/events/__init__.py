"""What can happen, and how it is written down."""

from servo.events.codec import UnknownEvent, decode, encode, encode_as_before, encode_checked
from servo.events.fact import GENESIS, Proposal, RecordedEvent, canonical_bytes, chain
from servo.events.model import EVENT_CLASSES, Event

__all__ = [
    "EVENT_CLASSES",
    "GENESIS",
    "Event",
    "Proposal",
    "RecordedEvent",
    "UnknownEvent",
    "canonical_bytes",
    "chain",
    "decode",
    "encode",
    "encode_as_before",
    "encode_checked",
]
