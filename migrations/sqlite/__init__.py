"""The scripts for SQLite, run in the order of their numbers."""
