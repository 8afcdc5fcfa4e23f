"""KV of requests that decode in the DRAM of their node: how much, over which way, and how fast. A
die reads it in every pass, layer by layer. All of a layer is copied in blocks while the layers
before compute, as FlexGen does (arXiv 2303.06865, figure 4); two layers have room on the die, one
that is attended to and one that arrives. With an indexer a layer knows only after its selection
what it lacks, so a kernel gathers that before the core (SGLang HiSparse, ESS: arXiv 2512.10576)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from twin.facts import Facts
from twin.hardware.network import Network
from twin.hardware.prices import host_copy_rates, pool_read
from twin.model.fetch import copies_bytes_per_s
from twin.model.shape import ModelError, Shape
from twin.scenario import InHost

ON_THE_WAY = 2  # layers whose KV has room on a die: attended to, and arriving


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Part of a die's KV in the DRAM of its node, and the way there when all dies use it."""

    part: InHost
    in_bytes_per_s: float  # of each die
    out_bytes_per_s: float
    latency_s: float
    block_tokens: int  # of a copy of one layer

    def layer_bytes(self, s: Shape, kv: str) -> float:
        """Bytes per token of KV in host memory, mean layer; kv: number format of KV."""
        return self.part.share * s.mean_keys * s.core_bytes_per_token_layer(kv)

    def token_bytes(self, s: Shape, kv: str) -> float:
        """Bytes per token of KV in host memory, all layers; kv: number format of KV."""
        return self.layer_bytes(s, kv) * s.layers

    def spared_bytes(self, s: Shape, kv: str) -> float:
        """Bytes per token of KV that need no HBM, all layers; kv: number format of KV."""
        staged_layers = 0.0 if s.index_top_k else min(ON_THE_WAY, s.all_layer_keys)
        spared_layers = s.all_layer_keys - staged_layers
        return self.part.share * spared_layers * s.core_bytes_per_token_layer(kv)

    def fitting_tokens(self, s: Shape, kv: str, request: int) -> float:
        """Most KV tokens of a die whose host-memory part fits the die's part of that memory.
        request: tokens of a request; kv: number format of KV. ModelError if no request fits."""
        most_tokens = self.part.die_bytes / self.token_bytes(s, kv)
        if most_tokens < request:
            needed_bytes = request * self.token_bytes(s, kv)
            raise ModelError(
                f"deployment.decode.kv_offload = {self.part.share:g} does not fit: a request of "
                f"{request:,} tokens has {needed_bytes / 1e9:.3g} GB in host memory, and a "
                f"die's part is {self.part.die_bytes / 1e9:.3g} GB: raise "
                "deployment.decode.kv_offload_gb_per_die"
            )
        return most_tokens

    def read_bytes(self, s: Shape, kv: str, query_tokens: float) -> float:
        """Bytes that a die reads in a pass per context token, mean layer. With an indexer each
        query token selects keys of its own, and those that the die still has from earlier passes
        are not read. kv: number format of KV; query_tokens: tokens of a request in the pass."""
        if not s.index_top_k:
            return self.layer_bytes(s, kv)
        read_share = min(self.part.share, 1.0 - self.part.hits)
        return read_share * s.mean_keys * s.core_bytes_per_token_layer(kv) * query_tokens

    def read_bytes_per_s(self, s: Shape, kv: str, facts: Facts) -> float:
        """Bytes/s at which a die reads host memory: by its links, and by starts of copies."""
        if s.index_top_k:
            return self.in_bytes_per_s
        block_bytes = self.block_tokens * s.core_bytes_per_token_layer(kv)
        return min(self.in_bytes_per_s, copies_bytes_per_s(facts, block_bytes))


def host_kv_path(
    net: Network, dies: Sequence[int], part: InHost, block_tokens: int
) -> HostMemory | None:
    """Bytes/s per die and latency of attention dies' copies of KV to and from host memory, on the
    worst node; None if all KV is on dies. HardwareError if a die does not reach its node's CPUs."""
    if part.share <= 0.0:
        return None
    in_bytes_per_s = out_bytes_per_s = math.inf
    latency_s = 0.0
    for node in net.nodes_of(dies):
        node_dies = [die for die in dies if net.node[net.dies[die]] == node]
        write_bytes_per_s, read_bytes_per_s = host_copy_rates(net, node_dies, "ub")
        in_bytes_per_s = min(in_bytes_per_s, read_bytes_per_s / len(node_dies))
        out_bytes_per_s = min(out_bytes_per_s, write_bytes_per_s / len(node_dies))
        latency_s = max(latency_s, pool_read(net, node_dies, "ub", (node,)).latency_s)
    return HostMemory(part, in_bytes_per_s, out_bytes_per_s, latency_s, block_tokens)
