"""Other digests of a scenario: what a newer or older schema calls it."""

import sqlalchemy as sa

from twin.lab.store.migrations.tables import foreign, make

revision, down_revision = "v0002", "v0001"


def upgrade() -> None:
    """Add the table; it is filled when a scenario is saved, by whoever knows all schemas."""
    make(
        "scenario_aliases", ["digest"], ["scenario"],
        foreign("scenario_aliases", "scenario", "scenarios.digest", ondelete="CASCADE"),
        digest=sa.String(64), scenario=sa.String(64),
    )  # fmt: skip
