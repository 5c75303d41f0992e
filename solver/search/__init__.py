"""Exact search for the best plan: candidates, bounds, formulation, driver."""
