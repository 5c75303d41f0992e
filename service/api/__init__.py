"""The HTTP surface: one resource per file."""
