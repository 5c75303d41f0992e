"""The planner as a pure library: no web, no database, no network, no clock and no environment."""
