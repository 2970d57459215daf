"""What tests of several rooms share: facts of every kind, a ledger to record them in, and projections to compare."""
