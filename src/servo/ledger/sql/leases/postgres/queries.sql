-- name: create_table
-- Who is alive until when, by the server's clock; and who was given up for lost, to be told so.
CREATE TABLE IF NOT EXISTS servo.leases (
    tenant_id    text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    holder_id    text COLLATE "C" NOT NULL,
    kind         text NOT NULL,
    host         text NOT NULL,
    pid          bigint NOT NULL,
    detail       text NOT NULL,
    expires_at   timestamptz NOT NULL,
    lost         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, workspace_id, holder_id)
);

-- name: beat
-- Take or renew a lease, unless it ran out before: then it is lost for good, and the answer says so.
INSERT INTO servo.leases AS held (tenant_id, workspace_id, holder_id, kind, host, pid, detail, expires_at)
VALUES (%(tenant)s, %(workspace)s, %(id)s, %(kind)s, %(host)s, %(pid)s, %(detail)s,
        statement_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (tenant_id, workspace_id, holder_id) DO UPDATE SET
    kind = excluded.kind,
    host = excluded.host,
    pid = excluded.pid,
    detail = excluded.detail,
    expires_at = CASE WHEN held.lost OR held.expires_at <= statement_timestamp()
                      THEN held.expires_at ELSE excluded.expires_at END,
    lost = held.lost OR held.expires_at <= statement_timestamp()
RETURNING lost;

-- name: give_up
-- Mark leases that ran out, so that they stay so whatever the clock does.
UPDATE servo.leases SET lost = true
WHERE tenant_id = %(tenant)s AND workspace_id = %(workspace)s AND NOT lost AND expires_at <= statement_timestamp();

-- name: live
-- Who is alive.
SELECT holder_id, kind, host, pid, detail FROM servo.leases
WHERE tenant_id = %(tenant)s AND workspace_id = %(workspace)s AND NOT lost ORDER BY holder_id;

-- name: release
-- End a lease that has not run out.
DELETE FROM servo.leases
WHERE tenant_id = %(tenant)s AND workspace_id = %(workspace)s AND holder_id = %(id)s
  AND NOT lost AND expires_at > statement_timestamp();

-- name: forget
-- Forget those who were given up for lost so long ago that they will not ask any more.
DELETE FROM servo.leases
WHERE tenant_id = %(tenant)s AND workspace_id = %(workspace)s
  AND lost AND expires_at <= statement_timestamp() - %(days)s * interval '1 day';
