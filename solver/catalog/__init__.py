"""Facts about devices, links and models as data files, each number with its source, and their loader."""
