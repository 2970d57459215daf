-- name: create_table
-- When each sensor was last asked, and how often it has found nothing since the last poll that was recorded. Times are
-- microseconds since 1970. Rows are changed often and none is ever long: room is left in each page for the next change.
CREATE TABLE IF NOT EXISTS servo.polls (
    tenant_id    text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    sensor_id    text COLLATE "C" NOT NULL,
    asked_at     bigint NOT NULL,
    recorded_at  bigint,
    quiet        bigint NOT NULL DEFAULT 0,
    quiet_since  bigint,
    reason       text,
    PRIMARY KEY (tenant_id, workspace_id, sensor_id)
) WITH (fillfactor = 50);

-- name: begin
-- Take the next poll of a sensor, unless another has taken it since it was looked at: then nothing is returned.
INSERT INTO servo.polls AS known (tenant_id, workspace_id, sensor_id, asked_at)
VALUES (%(tenant)s, %(workspace)s, %(sensor_id)s, %(at)s)
ON CONFLICT (tenant_id, workspace_id, sensor_id) DO UPDATE SET asked_at = excluded.asked_at
WHERE known.asked_at = %(seen)s
RETURNING asked_at;

-- name: count
-- Count a poll that found nothing. What was counted before the last recorded poll is in that poll's event.
INSERT INTO servo.polls AS known
    (tenant_id, workspace_id, sensor_id, asked_at, recorded_at, quiet, quiet_since, reason)
VALUES (%(tenant)s, %(workspace)s, %(sensor_id)s, %(at)s, %(recorded_at)s, 1, %(at)s, %(reason)s)
ON CONFLICT (tenant_id, workspace_id, sensor_id) DO UPDATE SET
    asked_at = excluded.asked_at,
    quiet = CASE WHEN known.recorded_at IS NOT DISTINCT FROM excluded.recorded_at THEN known.quiet + 1 ELSE 1 END,
    quiet_since = CASE WHEN known.recorded_at IS NOT DISTINCT FROM excluded.recorded_at
                       THEN coalesce(known.quiet_since, excluded.asked_at) ELSE excluded.asked_at END,
    recorded_at = excluded.recorded_at,
    reason = excluded.reason;

-- name: all
-- Every sensor that was asked.
SELECT sensor_id, asked_at, recorded_at, quiet, quiet_since, reason FROM servo.polls
WHERE tenant_id = %(tenant)s AND workspace_id = %(workspace)s;
