"""The HTTP service, the command line and the pages: a thin shell around `solver`."""
