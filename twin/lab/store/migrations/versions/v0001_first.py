"""The schema that the first databases had, from which older ones are migrated; a new database is
made from the models, at the last revision."""

revision = "v0001"
down_revision = None
