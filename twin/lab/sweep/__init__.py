"""Questions with each other: sweeps of fields, comparisons, and curves by formula."""
