"""Where a journal is kept: the port, and one implementation for each database."""
