"""Every published result next to what the twin computes for it, with the signed error.

`rows`: data/published.toml; `measures`: what the twin says for a row; `judge`: errors by what a row
can say; `calibrate` and `points`: fits to rows and to one's own measurements; `envelope`: how far
rows reach; `choices` and `made`: what hangs on figures without a source; `reproduce`: a row again.
"""
