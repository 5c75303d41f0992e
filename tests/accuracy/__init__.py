"""Predictions beside published and your own measured runs: `make accuracy`."""
