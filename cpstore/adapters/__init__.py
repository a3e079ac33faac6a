"""Adapters to agent frameworks, one module each, imported only when used."""
