-- name: has_table
-- Whether there is a table of fingerprints.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'tenant_secrets';

-- name: create_table
-- By which each tenant's secret is known. Made with the first of them, and not by a migration: older versions do not
-- mind it.
CREATE TABLE IF NOT EXISTS tenant_secrets (
    tenant_id   TEXT PRIMARY KEY NOT NULL,
    fingerprint TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- name: record
-- Record the fingerprint of a tenant that has none.
INSERT INTO tenant_secrets (tenant_id, fingerprint) VALUES (:tenant, :fingerprint) ON CONFLICT DO NOTHING;

-- name: find
-- The fingerprint of a tenant.
SELECT fingerprint FROM tenant_secrets WHERE tenant_id = :tenant;
