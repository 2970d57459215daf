-- name: create_table
-- Who is alive until when, in microseconds since 1970; and who was given up for lost, to be told so.
CREATE TABLE IF NOT EXISTS leases (
    tenant_id    TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    holder_id    TEXT NOT NULL,
    kind         TEXT NOT NULL,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    detail       TEXT NOT NULL,
    expires_at   INTEGER NOT NULL,
    lost         INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, workspace_id, holder_id)
) STRICT, WITHOUT ROWID;

-- name: beat
-- Take or renew a lease, unless it ran out before: then it is lost for good, and the answer says so.
INSERT INTO leases (tenant_id, workspace_id, holder_id, kind, host, pid, detail, expires_at)
VALUES (:tenant, :workspace, :id, :kind, :host, :pid, :detail, :until)
ON CONFLICT DO UPDATE SET
    kind = excluded.kind,
    host = excluded.host,
    pid = excluded.pid,
    detail = excluded.detail,
    expires_at = iif(lost OR expires_at <= :now, expires_at, excluded.expires_at),
    lost = lost OR expires_at <= :now
RETURNING lost;

-- name: give_up
-- Mark leases that ran out, so that they stay so whatever the clock does.
UPDATE leases SET lost = 1
WHERE tenant_id = :tenant AND workspace_id = :workspace AND NOT lost AND expires_at <= :now;

-- name: live
-- Who is alive.
SELECT holder_id, kind, host, pid, detail FROM leases
WHERE tenant_id = :tenant AND workspace_id = :workspace AND NOT lost ORDER BY holder_id;

-- name: release
-- End a lease that has not run out.
DELETE FROM leases
WHERE tenant_id = :tenant AND workspace_id = :workspace AND holder_id = :id AND NOT lost AND expires_at > :now;

-- name: forget
-- Forget those who were given up for lost so long ago that they will not ask any more.
DELETE FROM leases
WHERE tenant_id = :tenant AND workspace_id = :workspace AND lost AND expires_at <= :long_ago;
