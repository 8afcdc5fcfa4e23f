"""What Alembic runs: the revisions, inside the transaction that `migrate` has begun."""

from alembic import context

from twin.lab.store.models import Row

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Row.metadata,
    render_as_batch=True,  # SQLite changes a table by rebuilding it
)
context.run_migrations()
