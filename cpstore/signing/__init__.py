"""Ed25519 keys and whom to trust, the envelope of an entry, the note about a head."""
