"""The schema of the first databases; a new database is made from the models, at the last
revision."""

revision, down_revision = "v0001", None
