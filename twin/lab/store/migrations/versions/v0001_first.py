"""The schema that the first databases had: a new one is made from the models, at the last revision.

So no database is ever brought to this one; it is what older ones are migrated from.
"""

revision = "v0001"
down_revision = None
