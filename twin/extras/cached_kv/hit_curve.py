"""Hit ratio of a scenario's prompts by the size of its memory pool: one LRU gets every prompt in
order of arrival and stores it at once. A run is an LRU too, but looks up when a prefill begins and
stores when it ends, so it mostly hits less. The curve is no upper bound: in Mooncake's
conversations with 3 GB a node a run hits 9.23 %, the curve 9.01 %.

What reading a cached token takes by its place, and computing it again, is by formula."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from twin.commands import terminal
from twin.engine.contention.flows import storage_load
from twin.facts import Facts
from twin.hardware.demands import dram_ratio, lending_nodes
from twin.lab.ask import scenario_and_trace
from twin.lab.library import load_facts
from twin.metrics.measures import amount
from twin.model.fetch import node_dram_bytes
from twin.scenario import Scenario, with_overrides
from twin.steady import Counts, assemble, recompute_s
from twin.workload.generate import generate_requests, mean_lengths
from twin.workload.requests import TraceTable
from twin.workload.reuse_curve import ReuseCurve, reuse_curve


@dataclass(frozen=True, slots=True)
class Read:
    """Read of one prompt's cached tokens from one place."""

    place: str
    latency_s: float
    s_per_token: float
    computed_s_per_token: float  # were it not cached
    bytes_per_s: float  # that the instance gets from there
    pays_above_bytes_per_s: float | None  # for long prompts; None: never
    block_tokens: int

    @property
    def break_even_tokens(self) -> int | None:
        """Least cached tokens, in whole blocks, for which reading takes no longer; None: never."""
        saved_s_per_token = self.computed_s_per_token - self.s_per_token
        if saved_s_per_token <= 0.0:
            return None
        blocks = math.ceil(self.latency_s / saved_s_per_token / self.block_tokens)
        return self.block_tokens * max(1, blocks)


def read_costs(
    s: Scenario, facts: Facts, trace: TraceTable | None = None, counts: Counts | None = None
) -> list[Read]:
    """Costs of reading one prompt's cached KV into the first instance: a Read for DRAM over each
    plane, the scenario's plane first, then one for SSD if there is one. Empty without a memory pool
    or without prefill.
    trace, counts: the trace and the expert counts that the scenario names, if any."""
    if not s.memory_pool.enabled or s.deployment.mode == "decode_only":
        return []
    planes = [s.memory_pool.plane]
    if s.memory_pool.scope == "shared":
        planes += [plane for plane in ("ub", "vpc") if plane not in planes]
    reads, block_tokens = list[Read](), s.memory_pool.block_tokens
    for plane in planes:
        scenario = with_overrides(s, {"memory_pool.plane": plane})
        assembly = assemble(scenario, facts, trace, counts)
        role, servers = assembly.costs.prefilling_role, assembly.costs.servers
        assert role is not None  # somebody prefills
        input_tokens = mean_lengths(scenario.workload, facts, trace)[0]
        compute_s_per_token = recompute_s(assembly, role, input_tokens)
        dram_link, fetch, latency_s = servers.prices()[0], role.fetch, servers.prices()[0].latency_s
        saved_s_per_token = compute_s_per_token - fetch.ahead_s_per_token(latency_s)  # of a token
        break_even_bytes_per_s = (
            fetch.bytes_per_token / saved_s_per_token if saved_s_per_token > 0.0 else None
        )
        if break_even_bytes_per_s is not None and break_even_bytes_per_s > fetch.copies_bytes_per_s:
            break_even_bytes_per_s = None
        read_s_per_token = fetch.seconds(1.0, latency_s, dram_link.bytes_per_s) - latency_s
        is_local = s.memory_pool.scope == "local"
        place_text = "DRAM of its own nodes" if is_local else f"DRAM over {plane.upper()}"
        reads.append(Read(place_text, latency_s, read_s_per_token, compute_s_per_token,
                          dram_link.bytes_per_s, break_even_bytes_per_s, block_tokens))  # fmt: skip
        has_ssd = s.memory_pool.ssd_gb_per_node > 0.0
        ssd_load = storage_load(assembly.net, servers.dies) if has_ssd else None
        if ssd_load is not None and plane == planes[0]:  # together with the copy out of DRAM
            bytes_per_token = assembly.costs.kv_bytes_per_token
            ssd_bytes_per_s = ssd_load.rate_alone(assembly.net)[0]
            ssd_s_per_token = max(read_s_per_token, bytes_per_token / ssd_bytes_per_s)
            break_even_bytes_per_s = (
                break_even_bytes_per_s and bytes_per_token / compute_s_per_token
            )
            reads.append(Read("SSD over VPC", latency_s, ssd_s_per_token, compute_s_per_token,
                              ssd_bytes_per_s, break_even_bytes_per_s, block_tokens))  # fmt: skip
    return reads


LOOKED_AT = 50_000  # requests of a run, at most
POINTS = 24  # of the curve


@dataclass(frozen=True, slots=True)
class HitCurve:
    """Hit curve of one scenario, and its memory pool's point on it."""

    curve: ReuseCurve
    requests: int  # that were looked at
    block_bytes: float
    dram_bytes: float  # of the pool; 0: there is none
    ssd_bytes: float

    def hit_ratio(self, size_bytes: float) -> float:
        """Share of input tokens that hit in an LRU memory pool of `size_bytes`."""
        return self.curve.hit_ratio(math.floor(size_bytes / self.block_bytes))

    @property
    def pool_bytes(self) -> float:
        """Bytes of the pool: the larger of DRAM and SSD, as SSD also holds what DRAM holds."""
        return max(self.dram_bytes, self.ssd_bytes)

    @property
    def knee_bytes(self) -> float:
        """Bytes of the smallest pool with 95 % of the hits of an unlimited one."""
        return self.curve.knee_blocks() * self.block_bytes

    def points(self) -> list[tuple[float, float]]:
        """(bytes, hit ratio) at geometric steps, from 1/100 of `knee_bytes` to all blocks."""
        most_bytes = self.curve.blocks * self.block_bytes
        least_bytes = max(self.block_bytes, min(self.knee_bytes, most_bytes) / 100.0)
        sizes_bytes = np.geomspace(least_bytes, max(most_bytes, least_bytes), POINTS)
        return [(float(size_bytes), self.hit_ratio(size_bytes)) for size_bytes in sizes_bytes]


def hit_curve(s: Scenario, facts: Facts, trace: TraceTable | None = None) -> HitCurve:
    """Hit curve of a scenario's requests, drawn or of a trace, by one pass over their prompts."""
    most_requests = LOOKED_AT if trace is None else None
    block_tokens = s.memory_pool.block_tokens
    requests = generate_requests(
        s.workload, s.horizon_s, s.seed, block_tokens, facts, trace, most_requests
    )
    assembly = assemble(s, facts, trace)
    pool_nodes = 0.0
    if s.memory_pool.enabled:
        pool_nodes = dram_ratio(assembly.net, lending_nodes(assembly.net))
        if s.memory_pool.scope == "local":  # what one instance has
            role = assembly.costs.prefilling_role
            pool_nodes = role.dies / assembly.net.dies_per_node if role else 0.0
    dram_bytes = node_dram_bytes(s.memory_pool, facts, assembly.net.dies_per_node) * pool_nodes
    ssd_bytes = 1e9 * s.memory_pool.ssd_gb_per_node * pool_nodes
    block_bytes = assembly.costs.held_bytes(requests.block_tokens)
    return HitCurve(reuse_curve(requests), len(requests), block_bytes, dram_bytes, ssd_bytes)


def show_hit_curve(
    scenario: terminal.ScenarioName, settings: terminal.Settings = None,
    trace: terminal.TraceFile = None, as_json: terminal.AsJson = False,
) -> None:  # fmt: skip
    """Hit ratio against the size of the memory pool, in one pass over the prompts, before a run."""
    full_scenario, recorded_trace = scenario_and_trace(scenario, settings or [], trace)
    facts = load_facts()
    curve = hit_curve(full_scenario, facts, recorded_trace)
    kv_reads = read_costs(full_scenario, facts, recorded_trace)
    bytes_by_tier = {"DRAM": curve.dram_bytes, "DRAM and SSD": curve.pool_bytes}
    terminal.end_with_json({
        "requests": curve.requests, "blocks": curve.curve.blocks,
        "block_bytes": curve.block_bytes, "sampled": curve.curve.sampled,
        "ideal_hit_token_ratio": curve.curve.ideal_hit_ratio, "knee_bytes": curve.knee_bytes,
        "pool": [{"tier": tier, "bytes": size, "hit_token_ratio": curve.hit_ratio(size)}
                 for tier, size in bytes_by_tier.items()],
        "curve": [{"bytes": size, "hit_token_ratio": ratio} for size, ratio in curve.points()],
        "reads": [asdict(read) | {"break_even_tokens": read.break_even_tokens}
                  for read in kv_reads],
    }, as_json)  # fmt: skip
    ratio_rows = [(amount(size, "bytes"), amount(ratio, "share")) for size, ratio in curve.points()]
    ratio_headers = ("memory pool", "hit ratio")
    terminal.print_rows(f"{full_scenario.name}: hit ratio by size", ratio_headers, ratio_rows)
    pool_rows = [("requests looked at", f"{curve.requests:,}"),
            ("endless", amount(curve.curve.ideal_hit_ratio, "share")),
            ("95 % of that from", amount(curve.knee_bytes, "bytes"))]  # fmt: skip
    for tier, size in bytes_by_tier.items():
        hits_text = f"{amount(size, 'bytes')}: {amount(curve.hit_ratio(size), 'share')}"
        pool_rows.append((f"this pool's {tier}", hits_text))
    terminal.print_rows("The pool", ("", ""), pool_rows)
    read_rows = [
        (read.place, amount(1e3 * read.s_per_token + read.latency_s, "time"),
         amount(1e3 * read.computed_s_per_token, "time"), amount(read.bytes_per_s, "bytes", "B/s"),
         amount(read.pays_above_bytes_per_s, "bytes", "B/s"))
        for read in kv_reads
    ]  # fmt: skip
    read_headers = ("1,000 cached tokens from", "read", "computed again", "at", "break even at")
    if read_rows:
        terminal.print_rows("Read or compute again", read_headers, read_rows)
