"""An explanation's changes and gains in words, for the command line and for pages."""

from collections.abc import Mapping
from typing import Any

from twin.metrics.registry import METRICS, as_text
from twin.scenario import Scenario, field_info, value_of
from twin.scenario.fields import value_text
from twin.scenario.words import choice_label

# Pieces of the time of a request, from ideal to actual.
PIECES = {
    "weights": "Reading weights once",
    "attention": "Attention",
    "experts": "Experts and dense layers",
    "exchange": "Gate, dispatch and combine",
    "outside": "MTP, head and sampling",
    "host": "Host and front end",
    "kv": "KV transfer and memory pool",
    "queueing": "Queueing",
    "imbalance": "Expert imbalance",
    "faults": "Faults",
}
ROWS = {"faults": "Faults", "supernode.edits": "Fabric edits"}


def changes_text(settings: Mapping[str, Any], before: Scenario | None = None) -> str:
    """Fields with their new values as text, and with the old ones if a scenario `before` is given.

    >>> changes_text({"deployment.prefill.instances": 10})
    'Prefill instances 10'
    """
    return ", ".join(_field_text(path, new_value, before) for path, new_value in settings.items())


def _field_text(path: str, value: Any, before: Scenario | None) -> str:
    """A field with its new value as text; with a scenario `before` also its old value."""
    if path == "tenants":
        return "Limits of tenants: none"
    if isinstance(value, list):
        label = ROWS.get(path, path)
        return f"{label}: {len(value)} left" if value else f"{label}: none"
    field = field_info(path)
    label = field.label if field else path
    if path.startswith("admission.") and not value:
        return f"{label}: none"
    unit = field.unit_after_label if field else ""
    values = [value] if before is None else [value_of(before, path), value]
    value_texts = [
        choice_label(path, field_value) if isinstance(field_value, str) else value_text(field_value)
        for field_value in values
    ]
    return f"{label} {' → '.join(value_texts)} {unit}".rstrip()


def effect_text(gain: Mapping[str, Any]) -> str:
    """Effect of a change (a Gain as JSON) on its metric as text: 'TTFT p99 31.2 s → 0.82 s'."""
    metric = METRICS[gain["metric"]]
    value_texts = (as_text(metric.key, gain[side]) for side in ("before", "after"))
    metric_text = f"{metric.label} {' → '.join(value_texts)}"
    share_rise = gain["attained_after"] - gain["attained_before"]
    if gain["metric"] == "slo_attainment" or share_rise < 0.01:
        return metric_text
    share_texts = (
        as_text("slo_attainment", gain[f"attained_{side}"]) for side in ("before", "after")
    )
    return f"{metric_text}, SLO attainment {' → '.join(share_texts)}"
