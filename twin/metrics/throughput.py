"""Rates over the steady state: amounts and seconds in, tokens per second and NPU out."""

from __future__ import annotations


def per_second(amount: float, seconds: float, npus: float = 1) -> float | None:
    """Amount per second and NPU; None when no NPU or no time is there to divide by."""
    return amount / seconds / npus if seconds > 0 and npus > 0 else None


def quotient(above: float, below: float) -> float | None:
    """above / below, None when there is nothing below."""
    return above / below if below > 0 else None
