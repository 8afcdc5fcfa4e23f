"""One table for imported values of every kind, with a seal; it takes the place of `traces`."""

import sqlalchemy as sa
from alembic import op

from twin.lab.store.result import seal

revision = "v0003"
down_revision = "v0002"

COUNTS = "expert counts"  # what the format of a row said that was no trace


def upgrade() -> None:
    """Make the tables, fill them from the old one, drop that."""
    digest = sa.String(64)
    imports = op.create_table(
        "imports",
        sa.Column("digest", digest, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("format", sa.String(64), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("seal", digest, nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_imports"),
    )
    op.create_index("ix_imports_kind_created_s", "imports", ["kind", "created_s"])
    tables = op.create_table(
        "import_tables",
        sa.Column("digest", digest, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("sha256", digest, nullable=False),
        sa.PrimaryKeyConstraint("digest", "name", name="pk_import_tables"),
        sa.ForeignKeyConstraint(
            ["digest"], ["imports.digest"], name="fk_import_tables_digest", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sha256"], ["artefacts.sha256"], name="fk_import_tables_sha256"),
    )
    op.create_index("ix_import_tables_sha256", "import_tables", ["sha256"])
    _copy(imports, tables)
    op.drop_table("traces")


def _copy(imports: sa.Table, tables: sa.Table) -> None:
    """Every row of the old table; one whose JSON cannot be read gets no seal, so it is damaged."""
    connection = op.get_bind()
    old = sa.Table("traces", sa.MetaData(), autoload_with=connection)
    for row in connection.execute(sa.select(old)).mappings().all():
        value = {key: row[key] for key in ("digest", "name", "format")}
        about = row["about"] if isinstance(row["about"], dict) else {}
        if row["format"] == COUNTS:
            files = {"counts": row["requests_sha256"]}
            size = about.get("layers", 0) * about.get("experts", 0)
            value |= {"kind": "table of expert counts", "about": about, "rows": size}
        else:
            files = {"requests": row["requests_sha256"], "segments": row["segments_sha256"]}
            value |= {"kind": "trace", "about": about, "rows": row["requests"]}
        sound = isinstance(row["about"], dict)
        value |= {"seal": seal(value, files) if sound else "", "created_s": row["created_s"]}
        op.bulk_insert(imports, [value])
        named = [{"digest": row["digest"], "name": n, "sha256": s} for n, s in files.items()]
        op.bulk_insert(tables, named)
