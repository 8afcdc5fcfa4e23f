"""The schema of the first databases; a new one is made from the models."""

revision, down_revision = "v0001", None
