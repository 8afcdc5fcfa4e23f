"""Front end, router, memory pool, service-level objectives, power and price."""

from typing import Literal

from twin.scenario.declaration import Section, choice, quantity, unless, when

POOL_ON = when("memory_pool.enabled", True)
WEIGHTED = when("router.policy", "weighted")
BEHIND_FRONT = (
    unless("supernode.supernodes", 1), when("deployment.mode", "disaggregated", "colocated",
                                            "decode_only"),
)  # fmt: skip
HIT_ROUTERS = ("prefix_affinity", "predicted_ttft", "weighted")  # that read `ttft_s`, hits or KV


class FrontEnd(Section):
    """API servers: tokenise, check, hand on."""

    api_servers: int = quantity(16, "servers", "API servers", (1, 4096))
    service_ms: float = quantity(4.0, "ms", "API server time per request", (0, 10_000))
    """Time an API server needs for one request."""


class Router(Section):
    """Which supernode and which prefill instance take the next request."""

    front: Literal["none", "round_robin", "least_loaded"] = choice(
        "none", "Front router of several supernodes", options={
            "none": "None: one router sees every instance",
            "round_robin": "Supernodes in turn",
            "least_loaded": "Least loaded: fewest requests in progress",
        }, applies=BEHIND_FRONT, since=4, also="gateway, load balancer, join the shortest queue",
    )  # fmt: skip
    """Requests go to a supernode first, whose own router then chooses among its instances. Each
    supernode has an equal part of every pool, a memory pool and a line of waiting requests of its
    own, and no KV crosses. Instances that come and go do so in each supernode alike, and each of
    several models has a front router of its own. None: one router sees all instances."""
    front_report_s: float = quantity(
        0.0, "s", "Age of the front router's metrics", (0, 3600), since=4,
        applies=(*BEHIND_FRONT, when("router.front", "least_loaded")),
    )  # fmt: skip
    """Each supernode reports its requests in progress once in this time, and the front router knows
    no more in between, not even what it sent; 0: it knows them at every step.
    [Mitzenmacher 2000, How useful is old information?, IEEE TPDS 11(1)]"""

    policy: Literal[
        "round_robin", "least_loaded", "power_of_two", "prefix_affinity", "session_sticky",
        "predicted_ttft", "weighted",
    ] = choice(
        "least_loaded", "Router", options={
            "least_loaded": "Least loaded: shortest queue", "session_sticky": "Session affinity",
            "predicted_ttft": "Least predicted TTFT", "weighted": "Weighted scorers",
        },  # fmt: skip
    )  # fmt: skip
    """Instances in turn; the queue that ends first, of all (the paper's) or of two drawn; the
    fewest tokens waiting less prefix hits (Dynamo); the session's own; the least predicted time to
    first token, hits counted; or the highest weighted score (llm-d). At five loads of four
    workloads over one memory pool none is 3 % better than the default, up to 0.8 of capacity; with
    caches of their own it has up to twice the TTFT of the least predicted one on long
    conversations, for the prefix lies in one instance only. [arXiv 2506.12708v2 4.1]"""
    queue_weight: float = quantity(
        1.0, "", "Weight of a short queue", (0, 100), applies=WEIGHTED, since=2
    )
    """Weight of how short an instance's queue is, between the longest and the shortest."""
    prefix_weight: float = quantity(
        1.0, "", "Weight of prefix hits", (0, 100), applies=WEIGHTED, since=2
    )
    """Weight of the share of the prompt that is cached. llm-d gives a hit 3 and queue and KV space
    2 each since November 2025, before that 1 each.
    [kubernetes-sigs/gateway-api-inference-extension pull 1827]"""
    kv_weight: float = quantity(
        1.0, "", "Weight of free KV space", (0, 100), applies=WEIGHTED, since=2
    )
    """Weight of the share of an instance's KV space that is free."""


class MemoryPool(Section):
    """Context caching: KV blocks kept in the nodes' DRAM."""

    enabled: bool = choice(True, "Keep KV blocks for reuse", also="prefix cache, KV cache")
    """Keep KV blocks of prompts for reuse. [arXiv 2506.12708v2 4.4]"""
    in_hbm: bool = choice(
        False, "Prefix cache in HBM", also="prefix cache, automatic prefix caching, radix", since=4
    )
    """An instance that prefills also leaves KV blocks of its requests in HBM while there is room,
    the least recently used go first, and requests that share a prefix hold it once; a hit is read
    from nowhere. With or without the memory pool, which is read for what HBM lacks. [vLLM,
    automatic prefix caching; SGLang, RadixAttention, arXiv 2312.07104]"""
    scope: Literal["shared", "local"] = choice("shared", "Memory pool scope", applies=POOL_ON)
    """One pool for all, or one cache for each prefill instance in its own nodes' DRAM. [arXiv
    2506.12708v2 4.4.1]"""
    store: Literal["ems", "mooncake", "memcache", "yuanrong"] = choice(
        "ems", "Store", options={
            "ems": "EMS", "mooncake": "Mooncake Store", "memcache": "MemCache",
            "yuanrong": "YuanRong data system",
        }, applies=POOL_ON, since=2,  # fmt: skip
    )  # fmt: skip
    """What keeps the blocks: how full DRAM gets before it evicts, in what segments dies lend it, in
    how many pieces the KV of a layer is copied. [data/stores.toml]"""
    policy: Literal["lru", "lfu", "s3_fifo", "ttl", "infinite"] = choice(
        "lru", "Memory pool eviction", options={
            "lru": "Least recently used", "lfu": "Least frequently used", "s3_fifo": "S3-FIFO",
            "ttl": "Time to live", "infinite": "Endless",
        }, applies=POOL_ON, since=2,  # fmt: skip
    )  # fmt: skip
    """Which block DRAM lets go when it is full: the least recently used (the paper's); the least
    often used; S3-FIFO, through a small queue first; the least recently used, and whatever was not
    touched for a time to live; or none, with room for all. [arXiv 2506.12708v2 4.4.1; S3-FIFO: SOSP
    2023]"""
    ttl_s: float = quantity(
        600.0, "s", "Time to live", (0.1, 604_800), applies=when("memory_pool.policy", "ttl"),
        since=2,
    )  # fmt: skip
    """How long a block is kept that nobody reads, in both tiers."""
    gb_per_node: float = quantity(
        512.0, "GB", "Memory pool DRAM per node", (0.001, 16_384), applies=POOL_ON
    )
    """DRAM a node lends to the pool, one with another number of CPUs by these (the paper does not
    state a size). [assumption]"""
    weights_share: float = quantity(
        0.0, "of the DRAM", "Share for models' weights", (0, 0.99), step=0.1, since=4,
        applies=POOL_ON,
    )  # fmt: skip
    """Part of that DRAM which holds models' weights in place of KV blocks: whole models, of which
    the least recently started goes first; one that is not there comes from object storage. 0: all
    models have room elsewhere. [arXiv 2506.12708v2 4.4.3]"""
    block_tokens: int = quantity(128, "tokens", "KV block", (16, 1024), step=16)
    """Tokens of one KV block. [arXiv 2506.12708v2 4.4.2]"""
    layout: Literal["layer", "block"] = choice(
        "layer", "KV block's layout", options={"layer": "A piece a layer", "block": "One piece"},
        applies=POOL_ON, since=2,
    )  # fmt: skip
    """Pieces of a block in memory, each a copy of its own: one a layer, or all in one. [hicann/hixl
    benchmarks: DeepSeek-R1 is read in 61 pieces a block]"""
    layerwise: bool = choice(
        False, "Read layer by layer",
        applies=(POOL_ON, when("deployment.mode", "disaggregated", "prefill_only")), since=2,
    )  # fmt: skip
    """Prefill reads cached KV of a layer while it computes those before; off: all of a batch before
    it computes. [vllm-ascend, layerwise KV pool; DeepSeek, arXiv 2602.21548]"""
    ssd_gb_per_node: float = quantity(
        4096.0, "GB", "Memory pool SSD per node", (0, 1_048_576), applies=POOL_ON, since=2
    )
    """Volumes (EVS) that keep what DRAM evicts, read over the VPC plane (size assumed).
    [assumption]"""
    answers: bool = choice(
        False, "Keep KV of answers", applies=(POOL_ON, unless("deployment.mode", "prefill_only")),
        since=2,
    )  # fmt: skip
    """Keep the KV of answers too, so that the next turn of a session reads it."""
    namespaces: bool = choice(
        True, "A namespace for each tenant", applies=(POOL_ON, unless("tenants", ())), since=2
    )
    """Tenants share no block and have quotas; off: they share the memory pool as one would."""
    plane: Literal["ub", "vpc"] = choice("ub", "Memory pool plane", applies=POOL_ON)
    """Plane the pool is read over. [arXiv 2506.12708v2 5.4.3]"""

    @property
    def read_plane(self) -> Literal["ub", "vpc"]:
        """Plane of the pool's traffic: `plane`, or UB where instances have caches of their own."""
        return "ub" if self.scope == "local" else self.plane


class Cost(Section):
    """What NPUs draw and cost; nothing but a cap on what they draw moves time."""

    price_per_npu_hour: float = quantity(
        0.0, "per hour", "Price of an NPU-hour", (0, 10_000), also="cost, TCO"
    )
    """What an hour of an NPU costs, in a currency of your own; 0: no cost is shown."""
    npu_w: float = quantity(0.0, "W", "Rated power of an NPU", (0, 20_000), step=10)
    """Rated power of a package; 0: what data/chips says, often an estimate."""
    cap_w: float = quantity(0.0, "W", "Power cap of an NPU", (0, 20_000), step=10)
    """Most that a package may draw; where a pool at full load would draw more, the clock of its
    cores is lowered until it does not, and computing takes longer; HBM and links keep their rates.
    0: no cap. [mechanism: docs/SERVING.md]"""


class Slo(Section):
    """Service-level objectives; goodput counts requests that meet both."""

    ttft_s: float = quantity(5.0, "s", "TTFT SLO", (0.001, 3600))
    """Longest time to first token."""
    tpot_ms: float = quantity(
        50.0, "ms", "TPOT SLO", (0.1, 10_000), applies=unless("deployment.mode", "prefill_only")
    )
    """Longest mean time per output token. [arXiv 2506.12708v2 Table 5]"""
    share: float = quantity(0.99, "", "Share within the SLO", (0.5, 1), since=4)
    """Share of the requests that has to meet both for the SLO to be kept."""
