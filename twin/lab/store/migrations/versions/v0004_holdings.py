"""Who holds which run and scenario, on a server that knows its visitors by name."""

import sqlalchemy as sa

from twin.lab.store.migrations.tables import make_table

revision, down_revision = "v0004", "v0003"


def upgrade() -> None:
    """Add the table of holdings; no visitor holds what was stored before."""
    columns = {"visitor": sa.String(255), "name": sa.String(64)}
    make_table("holdings", ["visitor", "name"], ["name"], **columns)
