"""The life of a process: how it ends, what it starts, where it writes, and what the machine gives it."""
