-- name: has_table
-- Whether there is a table of fingerprints, asked of the catalog: a user who may not create one can still use it.
SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'servo' AND tablename = 'tenant_secrets';

-- name: create_lock
-- One who creates at a time, the ledger's migrations included, which make the same schema; until the transaction ends.
SELECT pg_advisory_xact_lock(7236837452101);

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
