-- name: create_table
-- When each sensor was last asked, and how often it has found nothing since the last poll that was recorded. Times are
-- microseconds since 1970.
CREATE TABLE IF NOT EXISTS polls (
    tenant_id    TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    sensor_id    TEXT NOT NULL,
    asked_at     INTEGER NOT NULL,
    recorded_at  INTEGER,
    quiet        INTEGER NOT NULL DEFAULT 0,
    quiet_since  INTEGER,
    reason       TEXT,
    PRIMARY KEY (tenant_id, workspace_id, sensor_id)
) STRICT, WITHOUT ROWID;

-- name: begin
-- Take the next poll of a sensor, unless another has taken it since it was looked at: then nothing is returned.
INSERT INTO polls (tenant_id, workspace_id, sensor_id, asked_at) VALUES (:tenant, :workspace, :sensor_id, :at)
ON CONFLICT DO UPDATE SET asked_at = excluded.asked_at WHERE asked_at = :seen
RETURNING asked_at;

-- name: count
-- Count a poll that found nothing. What was counted before the last recorded poll is in that poll's event.
INSERT INTO polls (tenant_id, workspace_id, sensor_id, asked_at, recorded_at, quiet, quiet_since, reason)
VALUES (:tenant, :workspace, :sensor_id, :at, :recorded_at, 1, :at, :reason)
ON CONFLICT DO UPDATE SET
    asked_at = excluded.asked_at,
    quiet = iif(recorded_at IS excluded.recorded_at, quiet + 1, 1),
    quiet_since = iif(recorded_at IS excluded.recorded_at, coalesce(quiet_since, excluded.asked_at), excluded.asked_at),
    recorded_at = excluded.recorded_at,
    reason = excluded.reason;

-- name: all
-- Every sensor that was asked.
SELECT sensor_id, asked_at, recorded_at, quiet, quiet_since, reason FROM polls
WHERE tenant_id = :tenant AND workspace_id = :workspace;
