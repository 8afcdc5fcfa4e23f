"""The tables of the database, as SQLAlchemy knows them today.

`migrations/` holds how they came to be; a test compares the two. Times are Unix seconds. What is
JSON here is at most a few kilobytes; anything longer is an artefact beside the database.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

QUEUED, RUNNING = "queued", "running"
DONE, FAILED, CANCELLED, INTERRUPTED = "done", "failed", "cancelled", "interrupted"
ENDED_STATES = (DONE, FAILED, CANCELLED, INTERRUPTED)
# Every change of state that may happen; the database refuses all others.
TRANSITIONS = (
    (QUEUED, RUNNING),
    (QUEUED, CANCELLED),
    (RUNNING, DONE),
    (RUNNING, FAILED),
    (RUNNING, CANCELLED),
    (RUNNING, INTERRUPTED),
)

DIGEST = String(64)
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

scenarios = Table(
    "scenarios",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("schema_version", Integer, nullable=False),
    Column("body", Text, nullable=False),  # canonical JSON: its SHA-256 is the digest
    Column("name", String(120), nullable=False),
    Column("question", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("trace_digest", DIGEST, nullable=False),  # "" without a trace; may not be stored here
    Column("parent", DIGEST, nullable=True),  # the scenario it was forked from
    Column("preset", String(120), nullable=False),  # key of the preset it is, or ""
    Column("created_s", Double, nullable=False),
    Column("published_s", Double, nullable=True),
    Index("ix_scenarios_created_s", "created_s"),
)

facts = Table(
    "facts",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_s", Double, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    # The question: pinned when the run is made.
    Column("scenario", DIGEST, ForeignKey("scenarios.digest"), nullable=False),
    Column("facts_digest", DIGEST, ForeignKey("facts.digest"), nullable=False),
    Column("engine_version", String(64), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("queued_s", Double, nullable=False),
    # The attempt.
    Column("state", String(16), nullable=False),
    Column("cancel_s", Double, nullable=True),  # when someone asked to stop it
    Column("progress", Double, nullable=False),  # 0..1
    Column("live", JSON, nullable=False),
    Column("started_s", Double, nullable=True),
    Column("beat_s", Double, nullable=True),
    Column("owner", String(64), nullable=False),  # "" until claimed
    Column("owner_host", String(255), nullable=False),
    Column("owner_pid", BigInteger, nullable=False),
    Column("owner_started", String(64), nullable=False),
    # The answer: written once, with the change to a final state.
    Column("finished_s", Double, nullable=True),
    Column("wall_s", Double, nullable=True),
    Column("message", Text, nullable=False),
    Column("valid", Boolean, nullable=False),
    Column("result_digest", DIGEST, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("checks", JSON, nullable=False),
    Column("notes", JSON, nullable=False),
    Column("seal", DIGEST, nullable=False),  # SHA-256 over the answer's columns and tables
    Column("published_s", Double, nullable=True),
    Index("ix_runs_queued_s", "queued_s"),
    Index("ix_runs_state_queued_s", "state", "queued_s"),
    Index("ix_runs_scenario_facts_digest", "scenario", "facts_digest"),
)

artefacts = Table(
    "artefacts",
    metadata,
    Column("sha256", DIGEST, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("created_s", Double, nullable=False),
)

run_tables = Table(
    "run_tables",
    metadata,
    Column("run", String(64), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("sha256", DIGEST, ForeignKey("artefacts.sha256"), nullable=False),
    Index("ix_run_tables_sha256", "sha256"),
)

traces = Table(
    "traces",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("format", String(64), nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("about", JSON, nullable=False),  # block_tokens, has_prefix, has_time, counts
    Column("requests_sha256", DIGEST, ForeignKey("artefacts.sha256"), nullable=False),
    Column("segments_sha256", DIGEST, ForeignKey("artefacts.sha256"), nullable=False),
    Column("created_s", Double, nullable=False),
    Index("ix_traces_created_s", "created_s"),
)
