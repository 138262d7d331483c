"""Contexts that clients continue turn by turn."""
