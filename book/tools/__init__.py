"""What builds, checks and serves the book. Only the standard library and mdBook itself."""
