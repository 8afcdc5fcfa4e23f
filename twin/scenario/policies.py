"""Front end, router, memory pool and what users were promised."""

from __future__ import annotations

from typing import Literal

from twin.scenario.declaration import PAPER, Section, choice, quantity


class FrontEnd(Section):
    """API servers: tokenise, check, hand on."""

    api_servers: int = quantity(16, "servers", "API servers.", low=1, high=4096)
    service_ms: float = quantity(
        4.0, "ms", "Time an API server needs for one request.", low=0, high=10_000
    )


class Router(Section):
    """Which prefill instance takes the next request."""

    policy: Literal[
        "round_robin", "least_loaded", "power_of_two", "prefix_affinity", "session_sticky"
    ] = choice(
        "least_loaded",
        "Stateless peer-to-peer choice, or one that follows the KV cache.",
        source=f"{PAPER} 4.1",
    )


class MemoryPool(Section):
    """Context caching: KV blocks kept in the nodes' DRAM."""

    enabled: bool = choice(True, "Keep KV blocks of prompts for reuse.", source=f"{PAPER} 4.4")
    scope: Literal["shared", "local"] = choice(
        "shared",
        "One pool for all, or one cache for each prefill instance in its own nodes' DRAM.",
        source=f"{PAPER} 4.4.1",
    )
    gb_per_node: float = quantity(
        512.0,
        "GB",
        "DRAM a node lends to the pool (the paper does not state a size).",
        low=0.001,
        high=16_384,
        source="assumption",
    )
    block_tokens: int = quantity(
        128, "tokens", "Tokens of one KV block.", low=16, high=1024, source=f"{PAPER} 4.4.2"
    )
    plane: Literal["ub", "vpc"] = choice(
        "ub", "Plane the pool is read over.", source=f"{PAPER} 5.4.3"
    )


class Slo(Section):
    """What a user was promised; goodput counts requests that got it."""

    ttft_s: float = quantity(5.0, "s", "Longest time to first token.", low=0.001, high=3600)
    tpot_ms: float = quantity(
        50.0,
        "ms",
        "Longest mean time per output token.",
        low=0.1,
        high=10_000,
        source=f"{PAPER} Table 5",
    )
