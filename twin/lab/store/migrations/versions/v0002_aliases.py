"""Other digests of a scenario: what a newer or older schema calls it."""

import sqlalchemy as sa

from twin.lab.store.migrations.tables import foreign_key, make_table

revision, down_revision = "v0002", "v0001"


def upgrade() -> None:
    """Add the table of aliases; saving a scenario fills it, as that knows all schemas."""
    make_table(
        "scenario_aliases", ["digest"], ["scenario"],
        foreign_key("scenario_aliases", "scenario", "scenarios.digest", ondelete="CASCADE"),
        digest=sa.String(64), scenario=sa.String(64),
    )  # fmt: skip
