"""Tables, engine, and all SQL."""
