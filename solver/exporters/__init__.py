"""Plans in, launcher files out."""
