"""The link of a scenario can be revoked: guards, which are made anew after every migration."""

revision, down_revision = "v0006", "v0005"


def upgrade() -> None:
    """Change no table."""
