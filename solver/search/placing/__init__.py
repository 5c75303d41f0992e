"""Graphs of operators on devices: the placement of least makespan, timed exactly."""
