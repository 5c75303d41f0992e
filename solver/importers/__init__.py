"""Text in, domain objects out, with every assumption listed."""
