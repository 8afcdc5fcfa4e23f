"""Cached KV: what a store holds of a node's DRAM, and what reading takes in addition to its bytes.
A block lies in the engine's KV tensors as one piece a layer: so many copies, each with its start, a
few in flight. Every die reads the latents of all prompts whose heads it shares out. Over UB a die's
copy engine reads the pool; over VPC blocks come into a node's memory once, and from there."""

import math
from dataclasses import dataclass, field

from twin.facts import Facts
from twin.hardware.network import Network
from twin.hardware.prices import Price, pool_read, server_port_rate
from twin.scenario.policies import MemoryPool


@dataclass(frozen=True, slots=True)
class Fetch:
    """Reads of one instance from the memory pool, all its dies together."""

    bytes_per_token: float  # that cross the pool's plane for one cached token
    copies_bytes_per_s: float  # of them at most, for the starts of copies; infinite over VPC
    staged_s_per_token: float  # copies out of a node's memory, after the plane (VPC)
    lookups_in_flight: float  # keys of blocks looked up at once, times a block's tokens

    def ahead_s_per_token(self, latency_s: float) -> float:
        """Seconds per cached token that do not overlap its transfer: look-ups of its block's key,
        which take a round trip of `latency_s` each, and copies out of a node's memory."""
        return self.staged_s_per_token + latency_s / self.lookups_in_flight

    def seconds(self, tokens: float, latency_s: float, bytes_per_s: float) -> float:
        """Seconds to read `tokens` cached tokens of a batch without other traffic. latency_s,
        bytes_per_s: of reads over the memory pool's plane, by all dies together."""
        plane_s_per_token = self.bytes_per_token / min(bytes_per_s, self.copies_bytes_per_s)
        return latency_s + tokens * (self.ahead_s_per_token(latency_s) + plane_s_per_token)


def copies_bytes_per_s(facts: Facts, piece_bytes: float, dies: int = 1) -> float:
    """Bytes/s at which `dies` dies copy pieces of `piece_bytes` to or from a node's memory."""
    in_flight = facts.si("operators.pool_copy.in_flight")
    return dies * in_flight * piece_bytes / facts.si("operators.pool_copy.start")


def fetch_figures(
    pool: MemoryPool, facts: Facts, readers: float, dies: int, dies_per_node: int, kv_bytes: float,
    layers: int,
) -> Fetch:  # fmt: skip
    """Figures of an instance's reads from the memory pool. readers: dies that need a prompt's
    latents; dies: of the instance; kv_bytes: of a token, all layers; layers: that store KV."""
    pieces_per_block = (
        layers * int(facts.si(f"stores.{pool.store}.pieces")) if pool.layout == "layer" else 1
    )
    copied_bytes_per_s = copies_bytes_per_s(
        facts, pool.block_tokens * kv_bytes / pieces_per_block, dies
    )
    lookups_in_flight = facts.si("operators.pool_copy.in_flight") * pool.block_tokens
    if pool.read_plane == "ub":
        return Fetch(kv_bytes * readers, copied_bytes_per_s, 0.0, lookups_in_flight)
    reading_nodes = math.ceil(min(readers, dies) / dies_per_node)
    staged_s_per_token = kv_bytes * readers / copied_bytes_per_s
    return Fetch(kv_bytes * reading_nodes, math.inf, staged_s_per_token, lookups_in_flight)


def fullest_server_share(blocks: float, servers: int) -> float:
    """Expected share of the fullest server if each of `blocks` is on a random server. It is the
    maximum of a multinomial: of Poisson numbers given their sum, which is taken as normal (Levin
    1981, Annals of Statistics 9:1123). Within 4 % from 16 blocks on, within 10 % below."""
    if servers < 2 or blocks <= 1.0:
        return 1.0
    mean_blocks = blocks / servers
    poisson_factor = math.exp(math.lgamma(blocks + 1.0) + blocks - blocks * math.log(blocks))
    limit_blocks = max(0, int(mean_blocks - 10.0 * math.sqrt(mean_blocks) - 10.0))
    expected_blocks, chance_within = float(limit_blocks), 0.0
    chance_sum = block_sum = square_sum = 0.0
    while chance_within < 1.0 - 1e-9:  # that no server has more than `limit_blocks`
        chance = math.exp(
            limit_blocks * math.log(mean_blocks) - mean_blocks - math.lgamma(limit_blocks + 1.0)
        )
        chance_sum, block_sum = chance_sum + chance, block_sum + limit_blocks * chance
        square_sum += limit_blocks**2 * chance
        if chance_sum > 0.0 and limit_blocks >= mean_blocks:
            sum_variance = servers * (square_sum / chance_sum - (block_sum / chance_sum) ** 2)
            missing_blocks = blocks - servers * block_sum / chance_sum
            sum_density = math.exp(-0.5 * missing_blocks**2 / sum_variance)
            sum_density /= math.sqrt(2.0 * math.pi * sum_variance)
            chance_within = min(1.0, poisson_factor * chance_sum**servers * sum_density)
        expected_blocks, limit_blocks = expected_blocks + 1.0 - chance_within, limit_blocks + 1
    return min(1.0, expected_blocks / blocks)


@dataclass(frozen=True, slots=True)
class Servers:
    """The memory pool's servers, as the first instance that computes prompts reads them."""

    net: Network = field(repr=False, compare=False)
    dies: tuple[int, ...]  # of that instance
    pool: MemoryPool
    prefixes: int  # popular ones that prompts begin with; 0: a trace has blocks of its own

    def read_s(self, read: Fetch, cached: float, prompts: float = 1.0) -> float:
        """Seconds until the instance has read the `cached` tokens of a batch of `prompts` from the
        memory pool, limited by its links and by the fullest server. read: figures of its reads."""
        if cached <= 0.0:
            return 0.0
        price, server_bytes_per_s = self.prices()
        same_prefix_prompts = (prompts - 1.0) / self.prefixes if self.prefixes else 0.0
        # Prompts of one prefix read the same blocks: the effective size of a weighted sample.
        different_blocks = cached / self.pool.block_tokens / (1.0 + max(0.0, same_prefix_prompts))
        all_bytes_per_s = server_bytes_per_s / fullest_server_share(different_blocks, price.peers)
        return read.seconds(cached, price.latency_s, min(price.bytes_per_s, all_bytes_per_s))

    def hottest_server_s(self, read: Fetch, cached: float, prompts: float, instances: int) -> float:
        """Seconds in which the hottest memory server sends the reads of one batch per instance,
        each of `cached` tokens in `prompts`: a lower bound of the time between batches. Servers are
        hot where many prompts share prefixes. read: figures of an instance's reads."""
        if cached <= 0.0 or not self.prefixes or self.pool.scope == "local":
            return 0.0
        price, port_bytes_per_s = self.prices()
        popular_blocks = self.prefixes * cached / prompts / self.pool.block_tokens
        sent_bytes = instances * cached * read.bytes_per_token
        return sent_bytes * fullest_server_share(popular_blocks, price.peers) / port_bytes_per_s

    def prices(self) -> tuple[Price, float]:
        """(price of a read from all servers equally, bytes/s of one server)."""
        near_nodes = self.net.nodes_of(self.dies) if self.pool.scope == "local" else None
        read_arguments = self.net, self.dies, self.pool.read_plane, near_nodes
        return pool_read(*read_arguments), server_port_rate(*read_arguments)


def node_dram_bytes(pool: MemoryPool, facts: Facts, dies_per_node: int) -> float:
    """Bytes of a node's DRAM that hold KV blocks once the store is full. Each die provides whole
    segments; half of what one eviction frees is free on average, below the watermark `full_at`."""
    store_path, lent_bytes = f"stores.{pool.store}", pool.gb_per_node * 1e9
    lent_bytes *= 1.0 - pool.weights_share
    if f"{store_path}.segment" in facts:
        segment_bytes = facts.si(f"{store_path}.segment") * dies_per_node
        lent_bytes = math.floor(lent_bytes / segment_bytes) * segment_bytes
    if f"{store_path}.full_at" not in facts:
        return lent_bytes
    return lent_bytes * (facts.si(f"{store_path}.full_at") - 0.5 * facts.si(f"{store_path}.evicts"))
