"""Records, one concept a module."""
