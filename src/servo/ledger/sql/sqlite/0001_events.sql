-- One row per workspace: its head, locked by whoever appends.
CREATE TABLE workspaces (
    workspace_no         INTEGER PRIMARY KEY,
    tenant_id            TEXT NOT NULL,
    workspace_id         TEXT NOT NULL,
    position             INTEGER NOT NULL,
    event_id             TEXT,
    chain_hash           TEXT NOT NULL,
    occurred_at          INTEGER,
    trimmed_position     INTEGER NOT NULL,
    trimmed_chain_hash   TEXT NOT NULL,
    UNIQUE (tenant_id, workspace_id)
) STRICT;

-- Events lie in the order of their positions. Times are microseconds since 1970, hashes are 32 bytes.
CREATE TABLE events (
    workspace_no    INTEGER NOT NULL REFERENCES workspaces,
    position        INTEGER NOT NULL,
    event_id        TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    event_version   INTEGER NOT NULL,
    occurred_at     INTEGER NOT NULL,
    actor           TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    correlation_id  TEXT NOT NULL,
    causation_id    TEXT,
    payload         BLOB NOT NULL,
    chain_hash      BLOB NOT NULL,
    PRIMARY KEY (workspace_no, position)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX events_by_idempotency_key ON events (workspace_no, idempotency_key);
