"""Look into a store: one module a command, each builds its answer first and then prints it for people."""
