-- What proves to anybody that a file is a ledger: "SVRO".
PRAGMA application_id = 0x5356524F;

-- Idempotency keys of events that were moved to the archive, for as long as a repetition may still come. Payloads are
-- compared by their SHA-256, taken before they were deflated.
CREATE TABLE archived_keys (
    workspace_no    INTEGER NOT NULL REFERENCES workspaces,
    idempotency_key TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    position        INTEGER NOT NULL,
    event_type      TEXT NOT NULL,
    payload_hash    BLOB NOT NULL,
    PRIMARY KEY (workspace_no, idempotency_key)
) STRICT, WITHOUT ROWID;

-- Ids grow with time, and keys are forgotten by age.
CREATE INDEX archived_keys_by_event ON archived_keys (workspace_no, event_id);
