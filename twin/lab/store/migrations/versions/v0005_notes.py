"""What visitors write about their runs and scenarios: names, tags and notes."""

import sqlalchemy as sa

from twin.lab.store.migrations.tables import make_table

revision, down_revision = "v0005", "v0004"


def upgrade() -> None:
    """Add the table of visitors' notes."""
    make_table(
        "notes", ["visitor", "name"], ["name"], visitor=sa.String(255), name=sa.String(64),
        title=sa.String(120), tags=sa.Text, text=sa.Text,
    )  # fmt: skip
