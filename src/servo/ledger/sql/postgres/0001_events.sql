-- One row per workspace: its head, locked by whoever appends.
CREATE TABLE servo.workspaces (
    workspace_no         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id            text NOT NULL,
    workspace_id         text NOT NULL,
    position             bigint NOT NULL,
    event_id             text,
    chain_hash           text NOT NULL,
    occurred_at          bigint,
    trimmed_position     bigint NOT NULL,
    trimmed_chain_hash   text NOT NULL,
    UNIQUE (tenant_id, workspace_id)
);

-- Times are microseconds since 1970, hashes are 32 bytes. Texts that are compared or sorted are so by their bytes,
-- whatever the language of the database. No foreign key: its check costs more per row than the insert itself, and
-- every writer holds the lock of the workspace that it names.
CREATE TABLE servo.events (
    workspace_no    integer NOT NULL,
    position        bigint NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    event_type      text NOT NULL,
    event_version   integer NOT NULL,
    occurred_at     bigint NOT NULL,
    actor           text NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    correlation_id  text COLLATE "C" NOT NULL,
    causation_id    text,
    payload         bytea NOT NULL,
    chain_hash      bytea NOT NULL,
    PRIMARY KEY (workspace_no, position)
);

-- Large payloads come deflated; trying to compress them again would only take time.
ALTER TABLE servo.events ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX events_by_idempotency_key ON servo.events (workspace_no, idempotency_key);
