"""The link of a scenario can be revoked: guards, which are made anew after every migration."""

revision = "v0006"
down_revision = "v0005"


def upgrade() -> None:
    """Change no table."""
