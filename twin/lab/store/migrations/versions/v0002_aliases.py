"""Other digests of a scenario: what a newer or older schema calls it."""

import sqlalchemy as sa
from alembic import op

revision = "v0002"
down_revision = "v0001"


def upgrade() -> None:
    """Add the table; it is filled when a scenario is saved, by whoever knows all schemas."""
    op.create_table(
        "scenario_aliases",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scenario", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_scenario_aliases"),
        sa.ForeignKeyConstraint(
            ["scenario"],
            ["scenarios.digest"],
            name="fk_scenario_aliases_scenario",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_scenario_aliases_scenario", "scenario_aliases", ["scenario"])
