"""What builds, checks, records, runs and serves the book. Nothing of the engine imports it."""
