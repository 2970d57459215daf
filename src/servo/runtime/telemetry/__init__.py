"""What Servo tells others of its work: metrics, traces, logs, readiness, OpenLineage."""
