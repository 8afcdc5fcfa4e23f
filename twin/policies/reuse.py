"""Whether cached KV is used: a choice that formula and simulation share."""

from __future__ import annotations

from twin.kernels.compiled import kernel


@kernel
def fetch_pays(fetch_s: float, recompute_s: float) -> bool:
    """Cached KV is read where that takes no longer than to compute it again."""
    return fetch_s <= recompute_s
