"""What visitors write about their runs and scenarios: names, tags and notes."""

import sqlalchemy as sa
from alembic import op

revision = "v0005"
down_revision = "v0004"


def upgrade() -> None:
    """Add the table; nothing was written down before."""
    op.create_table(
        "notes",
        sa.Column("visitor", sa.String(255), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("title", sa.String(120), nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("visitor", "name", name="pk_notes"),
    )
    op.create_index("ix_notes_name", "notes", ["name"])
