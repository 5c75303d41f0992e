"""One module per parallel dimension: legal degrees and conflicts."""
