-- name: session
-- What every connection needs: nobody holds or awaits the lock for ever, and every query here is a look-up by index,
-- also where the tables have not been analyzed yet.
SELECT set_config('lock_timeout', %(lock_timeout)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, false),
       set_config('enable_seqscan', 'off', false);

-- name: has_table
-- Whether there is a table of this name: `schema_version` where there is a schema at all. Asks the catalog, so that who
-- may not create a table can still use it, and because to_regclass answers from a cache, which does not see what another
-- process made while this transaction waited for the migration lock.
SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'servo' AND tablename = %(table)s);

-- name: version
-- The version of the schema.
SELECT version FROM servo.schema_version;

-- name: migration_lock
-- One who creates at a time in a database, migrations and tables beside the events; until the transaction ends. The
-- number means nothing.
SELECT pg_advisory_xact_lock(7236837452101);

-- name: create_schema
-- The place of everything that Servo keeps in a database.
CREATE SCHEMA IF NOT EXISTS servo;

-- name: create_version_table
-- How many migrations have run: a single row.
CREATE TABLE IF NOT EXISTS servo.schema_version (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

-- name: set_version
-- Remember how many migrations have run.
INSERT INTO servo.schema_version (version) VALUES (%(version)s)
ON CONFLICT (one) DO UPDATE SET version = excluded.version;

-- name: find_workspace
-- The number of a workspace.
SELECT workspace_no FROM servo.workspaces WHERE tenant_id = %(tenant)s AND workspace_id = %(workspace)s;

-- name: add_workspace
-- A new, empty workspace.
INSERT INTO servo.workspaces (tenant_id, workspace_id, position, chain_hash, trimmed_position, trimmed_chain_hash)
VALUES (%(tenant)s, %(workspace)s, 0, %(genesis)s, 0, %(genesis)s)
ON CONFLICT DO NOTHING;

-- name: begin
-- Start to write. Each statement must see what was committed while it waited for the lock.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: durable
-- A commit is on disk when it returns, however the server, the database or the user is set up.
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');

-- name: head
-- Where a workspace stands.
SELECT position, event_id, chain_hash, occurred_at, trimmed_position, trimmed_chain_hash
FROM servo.workspaces WHERE workspace_no = %(workspace_no)s;

-- name: lock_head
-- Where a workspace stands, and nobody else appends to it until this transaction ends: positions are commit order.
SELECT position, event_id, chain_hash, occurred_at, trimmed_position, trimmed_chain_hash
FROM servo.workspaces WHERE workspace_no = %(workspace_no)s FOR UPDATE;

-- name: advance
-- Move the head of a workspace, and wake those who wait for that when the transaction commits.
UPDATE servo.workspaces
SET position = %(position)s, event_id = %(event_id)s, chain_hash = %(chain_hash)s, occurred_at = %(occurred_at)s
WHERE workspace_no = %(workspace_no)s
RETURNING pg_notify(%(channel)s, '');

-- name: known
-- Events that hold one of the given idempotency keys, in the ledger or in the archive. The limits, which change nothing
-- about unique keys, keep the planner from other ways: one index look-up per key and table, however large the ledger is,
-- also before it was analyzed.
SELECT idempotency_key, event_id, position, event_type, payload, payload_hash
FROM unnest(%(keys)s::text[]) AS wanted (key)
CROSS JOIN LATERAL (
    (
        SELECT idempotency_key, event_id, position, event_type, payload, NULL::bytea AS payload_hash
        FROM servo.events
        WHERE workspace_no = %(workspace_no)s AND idempotency_key = wanted.key
        LIMIT 1
    )
    UNION ALL
    (
        SELECT idempotency_key, event_id, position, event_type, NULL, payload_hash
        FROM servo.archived_keys
        WHERE workspace_no = %(workspace_no)s AND idempotency_key = wanted.key
        LIMIT 1
    )
) AS holder;

-- name: newest_of_subjects
-- The newest event after a position that concerns one of the given subjects; one index look-up per subject.
SELECT max(newest) FROM unnest(%(subjects)s::text[]) AS wanted (subject)
CROSS JOIN LATERAL (
    SELECT max(position) AS newest FROM servo.events
    WHERE workspace_no = %(workspace_no)s AND correlation_id = wanted.subject AND position > %(position)s
) AS found;

-- name: insert
-- Many events at once, as rows of text.
COPY servo.events (workspace_no, position, event_id, event_type, event_version, occurred_at, actor,
                   idempotency_key, correlation_id, causation_id, payload, chain_hash)
FROM STDIN;

-- name: read
-- Events after a position, oldest first.
SELECT position, event_id, event_type, event_version, occurred_at, actor, idempotency_key, correlation_id,
       causation_id, payload, chain_hash
FROM servo.events WHERE workspace_no = %(workspace_no)s AND position > %(after)s
ORDER BY position LIMIT %(limit)s;

-- name: position_at
-- Bisect for the newest event whose id is not greater than the given one: ids grow with positions, so this needs no
-- index of its own. Where `low` and `high` do not meet, an event is missing.
WITH RECURSIVE bisection (low, high) AS (
    SELECT trimmed_position, position FROM servo.workspaces WHERE workspace_no = %(workspace_no)s
    UNION ALL
    SELECT CASE WHEN middle.event_id <= %(event_id)s THEN middle.position ELSE low END,
           CASE WHEN middle.event_id <= %(event_id)s THEN high ELSE middle.position - 1 END
    FROM bisection
    JOIN servo.events AS middle
      ON middle.workspace_no = %(workspace_no)s AND middle.position = (low + high + 1) / 2
    WHERE low < high
)
SELECT low, high FROM bisection ORDER BY high - low LIMIT 1;

-- name: chain_hash
-- The chain hash of the event at a position.
SELECT chain_hash FROM servo.events WHERE workspace_no = %(workspace_no)s AND position = %(position)s;

-- name: trim
-- Remove events that the archive holds.
DELETE FROM servo.events WHERE workspace_no = %(workspace_no)s AND position <= %(position)s;

-- name: keys_to_keep
-- Some of the events between two positions whose keys stay, because their ids are greater than a given one.
SELECT idempotency_key, event_id, position, event_type, payload, NULL::bytea
FROM servo.events
WHERE workspace_no = %(workspace_no)s AND position > %(after)s AND position <= %(position)s
  AND event_id > %(forget_keys)s
ORDER BY position LIMIT %(limit)s;

-- name: keep_keys
-- The keys of events that leave the ledger, as rows of text.
COPY servo.archived_keys (workspace_no, idempotency_key, event_id, position, event_type, payload_hash)
FROM STDIN;

-- name: forget_keys
-- Let the keys of archived events up to an id be free again.
DELETE FROM servo.archived_keys WHERE workspace_no = %(workspace_no)s AND event_id <= %(forget_keys)s;

-- name: mark_trimmed
-- Remember how far events were removed, and the chain hash there.
UPDATE servo.workspaces SET trimmed_position = %(position)s, trimmed_chain_hash = %(chain_hash)s
WHERE workspace_no = %(workspace_no)s;
