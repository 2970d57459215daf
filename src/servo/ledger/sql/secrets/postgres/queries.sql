-- name: create_table
-- By which each tenant's secret is known. Made with the first of them, and not by a migration: older versions do not
-- mind it.
CREATE TABLE IF NOT EXISTS servo.tenant_secrets (
    tenant_id   text COLLATE "C" PRIMARY KEY,
    fingerprint text NOT NULL
);

-- name: record
-- Record the fingerprint of a tenant that has none.
INSERT INTO servo.tenant_secrets (tenant_id, fingerprint) VALUES (%(tenant)s, %(fingerprint)s) ON CONFLICT DO NOTHING;

-- name: find
-- The fingerprint of a tenant.
SELECT fingerprint FROM servo.tenant_secrets WHERE tenant_id = %(tenant)s;
