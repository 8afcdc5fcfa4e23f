"""Who holds which run and scenario, on a server that knows its visitors by name."""

import sqlalchemy as sa
from alembic import op

revision = "v0004"
down_revision = "v0003"


def upgrade() -> None:
    """Add the table; no visitor holds what was stored before."""
    op.create_table(
        "holdings",
        sa.Column("visitor", sa.String(255), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("visitor", "name", name="pk_holdings"),
    )
    op.create_index("ix_holdings_name", "holdings", ["name"])
