"""How fast, measured on request: `make bench`."""
