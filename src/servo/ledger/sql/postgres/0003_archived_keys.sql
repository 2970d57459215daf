-- Idempotency keys of events that were moved to the archive, for as long as a repetition may still come. Payloads are
-- compared by their SHA-256, taken before they were deflated.
CREATE TABLE servo.archived_keys (
    workspace_no    integer NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    position        bigint NOT NULL,
    event_type      text NOT NULL,
    payload_hash    bytea NOT NULL,
    PRIMARY KEY (workspace_no, idempotency_key)
);

-- Ids grow with time, and keys are forgotten by age.
CREATE INDEX archived_keys_by_event ON servo.archived_keys (workspace_no, event_id);
