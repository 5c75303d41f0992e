"""The version of the formulas: part of every cache key and of every plan."""

COST_MODEL_VERSION = "1"
