"""A state as a tree, its changes, and the compressed bytes that hold them."""
