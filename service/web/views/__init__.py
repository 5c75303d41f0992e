"""Pages, one resource per file."""
