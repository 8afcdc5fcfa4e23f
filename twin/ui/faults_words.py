"""What the form calls the fields of recovery and the kinds of faults. Plain data."""

from __future__ import annotations

RECOVERY = tuple(
    f"recovery.{name}"
    for name in (
        "policy", "detection_s", "in_place_s", "restart_s", "spares", "retries", "lost_blocks",
    )
)  # fmt: skip
RECOVERY_LABELS = {
    "faults": "What breaks",
    "recovery.policy": "An instance that loses a die",
    "recovery.detection_s": "Until it is noticed",
    "recovery.in_place_s": "Recovering in place",
    "recovery.restart_s": "Starting anew",
    "recovery.spares": "Idle NPUs step in",
    "recovery.retries": "Retries of a request",
    "recovery.lost_blocks": "Blocks of a lost memory server",
}
RECOVERY_CHOICES = {
    "recovery.policy": {
        "restart": "Starts anew",
        "in_place": "Recovers in place",
        "shrink": "Goes on smaller",
    },
    "recovery.lost_blocks": {"ssd": "Read from SSD", "lost": "Gone"},
}
KINDS = {"fail": "Fails", "derate": "Derated", "slow": "Slowed"}
