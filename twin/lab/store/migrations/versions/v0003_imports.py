"""One table for imported values of every kind, with a seal; it takes the place of `traces`."""

import sqlalchemy as sa
from alembic import op

from twin.lab.store.migrations.tables import foreign_key, make_table
from twin.lab.store.runs import seal

revision, down_revision = "v0003", "v0002"

COUNTS = "expert counts"  # what the format of a row said that was no trace


def upgrade() -> None:
    """Make the tables of imported values, fill them from the table of traces, and drop that."""
    text64 = sa.String(64)
    imports = make_table(
        "imports", ["digest"], ["kind", "created_s"],
        digest=text64, kind=text64, name=sa.String(255), format=text64, about=sa.JSON(),
        rows=sa.BigInteger(), seal=text64, created_s=sa.Double(),
    )  # fmt: skip
    import_tables = make_table(
        "import_tables", ["digest", "name"], ["sha256"],
        foreign_key("import_tables", "digest", "imports.digest", ondelete="CASCADE"),
        foreign_key("import_tables", "sha256", "artefacts.sha256"),
        digest=text64, name=text64, sha256=text64,
    )  # fmt: skip
    # Every row of the old table; one whose JSON cannot be read gets no seal, so it is damaged.
    connection = op.get_bind()
    old_table = sa.Table("traces", sa.MetaData(), autoload_with=connection)
    for row in connection.execute(sa.select(old_table)).mappings().all():
        entry = {key: row[key] for key in ("digest", "name", "format")}
        attributes = row["about"] if isinstance(row["about"], dict) else {}
        if row["format"] == COUNTS:
            files = {"counts": row["requests_sha256"]}
            count_total = attributes.get("layers", 0) * attributes.get("experts", 0)
            entry |= {"kind": "table of expert counts", "about": attributes, "rows": count_total}
        else:
            files = {"requests": row["requests_sha256"], "segments": row["segments_sha256"]}
            entry |= {"kind": "trace", "about": attributes, "rows": row["requests"]}
        is_object = isinstance(row["about"], dict)
        entry |= {"seal": seal(entry, files) if is_object else "", "created_s": row["created_s"]}
        op.bulk_insert(imports, [entry])
        file_rows = [{"digest": row["digest"], "name": n, "sha256": s} for n, s in files.items()]
        op.bulk_insert(import_tables, file_rows)
    op.drop_table("traces")
