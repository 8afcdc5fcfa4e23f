"""Whether cached KV is used: a choice that formula and simulation share."""

from __future__ import annotations

from twin.kernels.compiled import kernel


@kernel
def fetch_pays(fetch_s: float, recompute_s: float) -> bool:
    """Whether reading cached KV takes no longer than computing it again."""
    return fetch_s <= recompute_s
