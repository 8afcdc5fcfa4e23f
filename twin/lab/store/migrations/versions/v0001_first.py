"""The first schema: scenarios, facts, runs, artefacts, traces."""

import sqlalchemy as sa
from alembic import op

revision = "v0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    _create_questions()
    _create_runs()
    _create_artefacts()


def downgrade() -> None:
    """Refused: a newer twin's data does not fit into an older one."""
    raise NotImplementedError("restore the backup made before the migration instead")


def _create_questions() -> None:
    op.create_table(
        "scenarios",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("trace_digest", sa.String(64), nullable=False),
        sa.Column("parent", sa.String(64), nullable=True),
        sa.Column("preset", sa.String(120), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("published_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name="pk_scenarios"),
    )
    op.create_index("ix_scenarios_created_s", "scenarios", ["created_s"])
    op.create_table(
        "facts",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_facts"),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("scenario", sa.String(64), nullable=False),
        sa.Column("facts_digest", sa.String(64), nullable=False),
        sa.Column("engine_version", sa.String(64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("queued_s", sa.Double(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("cancel_s", sa.Double(), nullable=True),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("live", sa.JSON(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=True),
        sa.Column("beat_s", sa.Double(), nullable=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("owner_host", sa.String(255), nullable=False),
        sa.Column("owner_pid", sa.BigInteger(), nullable=False),
        sa.Column("owner_started", sa.String(64), nullable=False),
        sa.Column("finished_s", sa.Double(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("result_digest", sa.String(64), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("seal", sa.String(64), nullable=False),
        sa.Column("published_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.ForeignKeyConstraint(["scenario"], ["scenarios.digest"], name="fk_runs_scenario"),
        sa.ForeignKeyConstraint(["facts_digest"], ["facts.digest"], name="fk_runs_facts_digest"),
    )
    op.create_index("ix_runs_queued_s", "runs", ["queued_s"])
    op.create_index("ix_runs_state_queued_s", "runs", ["state", "queued_s"])
    op.create_index("ix_runs_scenario_facts_digest", "runs", ["scenario", "facts_digest"])


def _create_artefacts() -> None:
    op.create_table(
        "artefacts",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_artefacts"),
    )
    op.create_table(
        "run_tables",
        sa.Column("run", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("run", "name", name="pk_run_tables"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_run_tables_run", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["sha256"], ["artefacts.sha256"], name="fk_run_tables_sha256"),
    )
    op.create_index("ix_run_tables_sha256", "run_tables", ["sha256"])
    op.create_table(
        "traces",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("format", sa.String(64), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("requests_sha256", sa.String(64), nullable=False),
        sa.Column("segments_sha256", sa.String(64), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_traces"),
        sa.ForeignKeyConstraint(
            ["requests_sha256"], ["artefacts.sha256"], name="fk_traces_requests_sha256"
        ),
        sa.ForeignKeyConstraint(
            ["segments_sha256"], ["artefacts.sha256"], name="fk_traces_segments_sha256"
        ),
    )
    op.create_index("ix_traces_created_s", "traces", ["created_s"])
