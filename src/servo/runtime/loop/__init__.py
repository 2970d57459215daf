"""The loop that control, driver and worker share: lease, heartbeat, trouble; one follower of the ledger a process."""
