-- Conditions ask whether anything happened to a run, a schedule, a backfill since a position.
CREATE INDEX events_by_subject ON servo.events (workspace_no, correlation_id, position);
