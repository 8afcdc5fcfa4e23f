"""Published results and the twin's answers to them: rows, measures, errors, bands, fits."""
