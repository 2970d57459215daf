"""Where facts are kept."""

from servo.ledger.address import open_ledger
from servo.ledger.memory import MemoryLedger
from servo.ledger.protocol import Condition, Head, Ledger, Receipt, Workspace

__all__ = ["Condition", "Head", "Ledger", "MemoryLedger", "Receipt", "Workspace", "open_ledger"]
