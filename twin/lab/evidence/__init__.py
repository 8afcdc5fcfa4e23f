"""Every published result beside what the twin computes for it, with the signed error.

`rows`: data/published.toml and the bars a row is held to. `measures`: what the twin says for a row.
`judge`: errors by what a row can say, and the headline. `first`: errors before anyone looked.
`calibrate`: the fit of the few constants to the rows that calibrate; `points`: the same fit to
someone's own measurements. `envelope`: how far the rows reach. `reproduce`: a row done again.
"""

from twin.lab.evidence.judge import evidence, headline, headlines, score_table, scores
from twin.lab.evidence.measures import answer_row
from twin.lab.evidence.rows import Bars, EvidenceError, Row, bars, load_published, scenario_of

__all__ = [
    "Bars",
    "EvidenceError",
    "Row",
    "answer_row",
    "bars",
    "evidence",
    "headline",
    "headlines",
    "load_published",
    "scenario_of",
    "score_table",
    "scores",
]
