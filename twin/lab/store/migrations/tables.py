"""How revisions make a table: no column is ever empty, and names follow from table and columns."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def make(
    name: str, key: Sequence[str], index: Sequence[str], /, *more: sa.Constraint, **columns: Any
) -> sa.Table:
    """Create a table with its primary key, an index, further constraints and typed columns."""
    fields = [sa.Column(column, kind, nullable=False) for column, kind in columns.items()]
    table = op.create_table(name, *fields, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"), *more)
    op.create_index(f"ix_{name}_{'_'.join(index)}", name, index)
    return table


def foreign(name: str, column: str, target: str, **how: Any) -> sa.Constraint:
    """Foreign key from a column of the table to a target column."""
    return sa.ForeignKeyConstraint([column], [target], name=f"fk_{name}_{column}", **how)
