"""Replanning after a change: what a new plan saves over the remaining steps, against what moving to it costs."""
