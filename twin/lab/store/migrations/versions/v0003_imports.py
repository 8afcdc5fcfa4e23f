"""One table for imported values of every kind, with a seal; it takes the place of `traces`."""

import sqlalchemy as sa
from alembic import op

from twin.lab.store.migrations.tables import foreign, make
from twin.lab.store.result import seal

revision, down_revision = "v0003", "v0002"

COUNTS = "expert counts"  # what the format of a row said that was no trace


def upgrade() -> None:
    """Make the tables, fill them from the old one, drop that."""
    short = sa.String(64)
    imports = make(
        "imports", ["digest"], ["kind", "created_s"],
        digest=short, kind=short, name=sa.String(255), format=short, about=sa.JSON(),
        rows=sa.BigInteger(), seal=short, created_s=sa.Double(),
    )  # fmt: skip
    tables = make(
        "import_tables", ["digest", "name"], ["sha256"],
        foreign("import_tables", "digest", "imports.digest", ondelete="CASCADE"),
        foreign("import_tables", "sha256", "artefacts.sha256"),
        digest=short, name=short, sha256=short,
    )  # fmt: skip
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
