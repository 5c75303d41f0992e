"""One set of formulas that prices every layout, whoever asks."""
