"""Fits of the catalogue's operator curves to measured tables: `python -m benchmarks.fits.gemm [DIRECTORY]`, likewise `.attention`, `.elementwise`."""
