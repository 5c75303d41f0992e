"""Megatron-LM: a launch script, its host table, the rank table, and notes. Written against the source of one version, named in every file."""
from solver.exporters.megatron.rules import reasons_against
from solver.exporters.megatron.script import files
from solver.exporters.megatron.version import WRITTEN_FOR

__all__ = ["WRITTEN_FOR", "files", "reasons_against"]
