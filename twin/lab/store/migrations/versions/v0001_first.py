"""The schema of the first databases; new ones are made from the models, at the last revision."""

revision, down_revision = "v0001", None
