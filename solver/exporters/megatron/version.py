"""The version of the launcher that this package was written against."""

WRITTEN_FOR = "Megatron-LM main d98e8a6 of 2026-08-22 (Megatron Core 0.20 in development)"
