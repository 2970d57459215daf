-- name: find_workspace
-- The number of a workspace.
SELECT workspace_no FROM workspaces WHERE tenant_id = ? AND workspace_id = ?;

-- name: add_workspace
-- A new, empty workspace.
INSERT INTO workspaces (tenant_id, workspace_id, position, chain_hash, trimmed_position, trimmed_chain_hash)
VALUES (?, ?, 0, ?, 0, ?)
ON CONFLICT DO NOTHING;

-- name: head
-- Where a workspace stands.
SELECT position, event_id, chain_hash, occurred_at, trimmed_position, trimmed_chain_hash
FROM workspaces WHERE workspace_no = ?;

-- name: advance
-- Move the head of a workspace.
UPDATE workspaces SET position = ?, event_id = ?, chain_hash = ?, occurred_at = ? WHERE workspace_no = ?;

-- name: known
-- Events that hold one of the given idempotency keys, which come as one JSON list, in the ledger or in the archive.
-- The cross joins pin the plan: one index look-up per key, however large the ledger is; and none of the archived keys
-- where there are none, which is asked once.
SELECT idempotency_key, event_id, position, event_type, payload, NULL AS payload_hash
FROM json_each(:keys) AS wanted CROSS JOIN events
WHERE workspace_no = :workspace_no AND idempotency_key = wanted.value
UNION ALL
SELECT idempotency_key, event_id, position, event_type, NULL, payload_hash
FROM json_each(:keys) AS wanted CROSS JOIN archived_keys
WHERE workspace_no = :workspace_no AND idempotency_key = wanted.value
  AND EXISTS (SELECT 1 FROM archived_keys WHERE workspace_no = :workspace_no);

-- name: newest_of_subjects
-- The newest event after a position that concerns one of the given subjects, which come as one JSON list.
SELECT max(position) FROM json_each(?) AS wanted CROSS JOIN events
WHERE workspace_no = ? AND correlation_id = wanted.value AND position > ?;

-- name: insert
-- One event.
INSERT INTO events (workspace_no, position, event_id, event_type, event_version, occurred_at, actor,
                    idempotency_key, correlation_id, causation_id, payload, chain_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read
-- Events after a position, oldest first.
SELECT position, event_id, event_type, event_version, occurred_at, actor, idempotency_key, correlation_id,
       causation_id, payload, chain_hash
FROM events WHERE workspace_no = ? AND position > ? ORDER BY position LIMIT ?;

-- name: position_at
-- Bisect for the newest event whose id is not greater than the given one: ids grow with positions, so this needs no
-- index of its own. One statement, because a trim between two would look like a gap. Where `low` and `high` do not
-- meet, an event is missing.
WITH RECURSIVE bisection (low, high) AS (
    SELECT trimmed_position, position FROM workspaces WHERE workspace_no = :workspace_no
    UNION ALL
    SELECT CASE WHEN middle.event_id <= :event_id THEN middle.position ELSE low END,
           CASE WHEN middle.event_id <= :event_id THEN high ELSE middle.position - 1 END
    FROM bisection CROSS JOIN events AS middle
    WHERE low < high AND middle.workspace_no = :workspace_no AND middle.position = (low + high + 1) / 2
)
SELECT low, high FROM bisection ORDER BY high - low LIMIT 1;

-- name: chain_hash
-- The chain hash of the event at a position.
SELECT chain_hash FROM events WHERE workspace_no = ? AND position = ?;

-- name: trim
-- Remove events that the archive holds.
DELETE FROM events WHERE workspace_no = ? AND position <= ?;

-- name: keys_to_keep
-- Events up to a position whose keys stay, because their ids are greater than a given one.
SELECT idempotency_key, event_id, position, event_type, payload, NULL
FROM events WHERE workspace_no = ? AND position <= ? AND event_id > ?;

-- name: keep_key
-- The key of an event that leaves the ledger.
INSERT INTO archived_keys (workspace_no, idempotency_key, event_id, position, event_type, payload_hash)
VALUES (?, ?, ?, ?, ?, ?);

-- name: forget_keys
-- Let the keys of archived events up to an id be free again.
DELETE FROM archived_keys WHERE workspace_no = ? AND event_id <= ?;

-- name: mark_trimmed
-- Remember how far events were removed, and the chain hash there.
UPDATE workspaces SET trimmed_position = ?, trimmed_chain_hash = ? WHERE workspace_no = ?;
