"""The Evidence page, what its rows rest on, and re-fits; answers use `twin/lab/evidence` only."""

from twin.hooks import Command, MadePart, Page

HOOKS = (
    Page(
        "evidence", "twin.extras.evidence.page", "Evidence", "fact_check",
        "How far the twin is from what was measured.", "Library and reference",
    ),
    Command("evidence", "twin.extras.evidence.commands:evidence"),
    Command("calibrate", "twin.extras.evidence.commands:calibrate"),
    MadePart("accuracy", "twin.extras.evidence.made:accuracy_table"),
    MadePart("rankings", "twin.extras.evidence.made:rankings_table"),
    MadePart("cross", "twin.extras.evidence.made:cross_table"),
)  # fmt: skip
