"""How fast and how accurate, measured on request: `make bench`, `make accuracy`."""
