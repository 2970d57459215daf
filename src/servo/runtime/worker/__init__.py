"""The worker: claims tasks, computes them on Spark, and records what came of them."""
