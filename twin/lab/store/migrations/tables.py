"""How revisions make a table: no column is ever empty, and names follow from table and columns."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def make_table(
    name: str, key: Sequence[str], index: Sequence[str], /, *more: sa.Constraint, **columns: Any
) -> sa.Table:
    """Create a table with primary key, index, further constraints and typed columns by name."""
    fields = [sa.Column(column, kind, nullable=False) for column, kind in columns.items()]
    table = op.create_table(name, *fields, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"), *more)
    op.create_index(f"ix_{name}_{'_'.join(index)}", name, index)
    return table


def foreign_key(name: str, column: str, target: str, **options: Any) -> sa.Constraint:
    """Foreign key, with options, from a column of table `name` to a target 'table.column'."""
    return sa.ForeignKeyConstraint([column], [target], name=f"fk_{name}_{column}", **options)
