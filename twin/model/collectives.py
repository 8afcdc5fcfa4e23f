"""Time of dispatch and combine from the fabric's prices: launch, a barrier whose rounds grow with
the logarithm of the peers, per-message work of vector cores, and bytes at the granted rate. The
first three are fitted to Table 7 of arXiv 2506.12708v2; other families take data/operators.toml."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from twin.facts import Facts
from twin.hardware.flows import Operation
from twin.hardware.network import Network, cached_by_network
from twin.hardware.prices import all_to_all
from twin.model.coefficients import Collective, Transfer
from twin.model.formats import ACTIVATION_BYTES
from twin.model.operators import combine_bytes, dispatch_bytes
from twin.model.roofline import Machine, chip_of_tables
from twin.model.shape import Shape
from twin.scenario import Communication


@dataclass(frozen=True, slots=True)
class Measured:
    """Dispatch or combine as measured over one network of a chip."""

    start_s: float  # with the latency of the way
    gain: float  # the rate that it reaches, over what the fabric grants


@dataclass(frozen=True, slots=True)
class Exchange:
    """Uniform all-to-all among an instance's dies over the fabric. Rates are bytes/s that one die
    injects; `remote` is the share of messages that leave the die."""

    peers: int
    rate_bytes_per_s: float
    latency_s: float
    remote: float
    off_node: float = 0.0  # share of what is sent that leaves the node
    nodes: int = 1  # nodes these dies are on
    slow_between: bool = False  # other nodes are reached over the RDMA plane
    inside_bytes_per_s: float = 0.0  # among the dies of one node alone, where nodes are slow apart
    beyond_bytes_per_s: float = 0.0  # over the plane between nodes alone
    dispatch: Measured | None = None  # where its kernels were measured on such a network
    combine: Measured | None = None
    ports: float = 1.0  # time of the fullest port over that of the fullest link


@dataclass(frozen=True, slots=True)
class HalfAllReduce:
    """One half of an all-reduce: its start, and the rate at which a die moves its bytes. Engines
    have another kernel for large messages, with a longer start and a higher rate."""

    start_s: float
    bytes_per_s: float
    beyond_bytes: float = 0.0  # moved by a die, from which that kernel is faster
    saved_s: float = 0.0  # by it, per byte beyond these

    def collective(self, moved: float, starts: float = 1.0) -> Collective:
        """Coefficients of `starts` such halves, which together move `moved` bytes per token."""
        beyond_tokens = starts * (self.beyond_bytes / moved)
        s_per_token = moved / self.bytes_per_s
        return Collective(starts * self.start_s, s_per_token, beyond_tokens, self.saved_s * moved)


class MoeTraffic(NamedTuple):
    """One dispatch and one combine, each of fixed + message * tokens of the busiest die + max(token
    * these, row * rows of the hottest expert die)."""

    dispatch: Transfer
    combine: Transfer
    host_s: float = 0.0  # that the host waits for counts before each dispatch: nothing hides it


@cached_by_network
def exchange(net: Network, dies: Sequence[int], operation: Operation = "write") -> Exchange:
    """Figures of an all-to-all among `dies` (a range or a tuple) over the scale-up plane, or over
    the plane that replaces it between nodes. operation: "write" or "read"."""
    die_count = len(dies)
    if die_count < 2:
        return Exchange(1, float("inf"), 0.0, 0.0)
    price = all_to_all(net, dies, "ub", operation)
    die_vertices = net.dies[np.asarray(dies)]
    node_count = np.unique(net.node[die_vertices]).size
    is_slow_between = np.unique(net.domain[die_vertices]).size == node_count > 1
    inside_bytes_per_s = beyond_bytes_per_s = 0.0
    if is_slow_between and node_count > 1 and die_count >= 2 * node_count:
        inside_bytes_per_s = all_to_all(
            net, dies[: die_count // node_count], "ub", operation
        ).bytes_per_s
        beyond_bytes_per_s = price.bytes_per_s * price.off_node_fraction
    return Exchange(
        die_count, price.bytes_per_s, price.latency_s, (die_count - 1) / die_count,
        price.off_node_fraction, nodes=node_count, slow_between=is_slow_between,
        inside_bytes_per_s=inside_bytes_per_s, beyond_bytes_per_s=beyond_bytes_per_s,
        ports=price.ports,
    )  # fmt: skip


def two_level_exchange(x: Exchange, top_k: int, most_nodes: int) -> Exchange:
    """The exchange `x` if a token crosses to each other node once and is spread inside it. Where
    the plane between nodes is slow, engines send hierarchically: of `top_k` messages as many cross
    as their experts have distinct nodes, at most `most_nodes` by the router's limit (arXiv
    2412.19437 section 3.2.2). Inside a node all use its own plane, which may be the slower one."""
    if not x.slow_between or x.nodes < 2:
        return x
    nodes_reached = x.nodes * (1.0 - (1.0 - 1.0 / x.nodes) ** top_k)
    crossing_messages = min(nodes_reached, float(most_nodes)) * x.off_node
    bytes_per_s, ports = x.rate_bytes_per_s * top_k * x.off_node / crossing_messages, x.ports
    inside_bytes_per_s = max(x.rate_bytes_per_s, x.inside_bytes_per_s)
    if x.inside_bytes_per_s > 0.0 and inside_bytes_per_s < bytes_per_s:
        bytes_per_s, ports = inside_bytes_per_s, 1.0
    return replace(x, rate_bytes_per_s=bytes_per_s, off_node=crossing_messages / top_k, ports=ports)


def direct_exchange(x: Exchange, chip: str, facts: Facts) -> Exchange:
    """The exchange `x` with low-latency kernels: each message goes straight to its die, to another
    node through the sender's NIC. Start and rate are as measured on such networks of the chip, or
    of the one that `exchange_of` names, inside a node or across nodes (`operators.exchange` of
    data/chips). If none were measured, rates across nodes are the family's share of the NIC's."""
    crosses_nodes = x.slow_between and x.nodes > 1
    network = "across" if crosses_nodes else "inside"
    path = f"chips.{chip_of_tables(facts, chip, 'exchange')}.operators.exchange.{network}"
    efficiency_path = "fabric.efficiency.rdma" if crosses_nodes else f"chips.{chip}.link_efficiency"
    link_share = facts.si(efficiency_path)
    if f"{path}.dispatch_rate" in facts:
        dispatch, combine = (
            Measured(facts.si(f"{path}.{way}_start"), facts.si(f"{path}.{way}_rate") / link_share)
            for way in ("dispatch", "combine")
        )
        return replace(x, dispatch=dispatch, combine=combine)
    if not crosses_nodes:
        return x
    rate_gain = facts.si("operators.nvidia.direct_rdma") / link_share
    return replace(x, rate_bytes_per_s=x.rate_bytes_per_s * rate_gain)


def launch_and_round_s(m: Machine, facts: Facts) -> tuple[float, float]:
    """(seconds to launch a collective, seconds of one round of its barrier)."""
    if m.family == "ascend":
        return m.fitted["comm_fixed"], m.fitted["barrier_round"]
    fact_prefix = f"operators.{m.family}"
    return facts.si(f"{fact_prefix}.comm_fixed"), facts.si(f"{fact_prefix}.barrier_round")


def half_all_reduce(m: Machine, facts: Facts, x: Exchange, library: bool = False) -> HalfAllReduce:
    """Half an all-reduce: a gather or a reduce-scatter among the dies of a rank. Inside a node
    start and rate are measured ones, of the faster of two kernels, on the chip or on the one that
    `exchange_of` names: of halves (`collective.halves` of data/chips; `collective.gathers`, of
    NCCL, if `library` is set), else of all-reduces (`collective.inside`), with half their start.
    Without these they are as measured in service for the family (`collective`), else dispatch's
    start and the fabric's rate. Values are interpolated by number of dies, and constant beyond the
    measured range."""
    chip_name = facts.word(f"chips.{m.chip.name}.exchange_of", m.chip.name)
    table_chip = chip_of_tables(facts, m.chip.name, "exchange")
    chip_path = f"chips.{table_chip}.operators.collective"
    family_path = f"operators.{m.family}.collective"
    is_gather = library and f"{chip_path}.gathers.dies" in facts
    kernel_path = f"{chip_path}.gathers" if is_gather else f"{chip_path}.inside"
    halves_path = f"chips.{chip_name}.operators.collective.halves"
    if f"{halves_path}.dies" in facts and x.nodes == 1:
        start_s = float(np.interp(x.peers, facts[f"{halves_path}.dies"].value,
                                  facts[f"{halves_path}.start"].list_si))  # fmt: skip
        link_share = facts.si(f"{halves_path}.rate")
        large_link_share = facts.si(f"{halves_path}.large_rate")
        link_bytes_per_s = x.rate_bytes_per_s / facts.si("fabric.efficiency.npu_read")
        later_s = (x.peers - 1) * facts.si(f"{halves_path}.peer")
        return _faster_kernel(link_bytes_per_s, start_s, link_share, later_s, large_link_share)
    if f"{kernel_path}.dies" in facts and x.nodes == 1:
        die_counts = facts[f"{kernel_path}.dies"].value
        small_start_s, link_share, large_start_s, large_link_share = (
            float(np.interp(x.peers, die_counts, facts[f"{kernel_path}.{figure}"].list_si))
            for figure in ("start", "rate", "large_start", "large_rate")
        )
        link_bytes_per_s = x.rate_bytes_per_s / facts.si(f"chips.{m.chip.name}.link_efficiency")
        start_share = 1.0 if is_gather else 0.5  # of the starts that were measured
        later_s = start_share * max(0.0, large_start_s - small_start_s)
        return _faster_kernel(
            link_bytes_per_s, start_share * small_start_s, link_share, later_s, large_link_share
        )
    if f"{family_path}.dies" in facts:
        die_counts = facts[f"{family_path}.dies"].value
        start_s = float(np.interp(x.peers, die_counts, facts[f"{family_path}.start"].list_si))
        return HalfAllReduce(start_s, x.rate_bytes_per_s)
    launch_s, round_s = launch_and_round_s(m, facts)
    return HalfAllReduce(launch_s + x.latency_s + round_s * math.log2(x.peers), x.rate_bytes_per_s)


def _faster_kernel(
    link_bytes_per_s: float, start_s: float, share: float, later_s: float, large_share: float
) -> HalfAllReduce:
    """Half an all-reduce by the faster of two kernels over a link: one reaches `share` of the
    link's rate; the other, for large messages, starts `later_s` later and reaches `large_share`."""
    saved_s_per_byte = max(0.0, 1.0 / share - 1.0 / large_share) / link_bytes_per_s
    break_even_bytes = later_s / saved_s_per_byte if saved_s_per_byte > 0.0 else 0.0
    return HalfAllReduce(start_s, share * link_bytes_per_s, break_even_bytes, saved_s_per_byte)


def adding_bytes_per_s(m: Machine, facts: Facts, vector_share: float) -> float:
    """Bytes/s of partial sums that a reduce-scatter adds up on a share of the vector cores: as
    measured for the family (`collective.adding`), otherwise as for element-wise work."""
    share_of_hbm = facts.si(f"operators.{m.family}.collective.adding", m.vector_utilisation)
    return m.chip.hbm_bytes_per_s * share_of_hbm * vector_share * m.cores


def moe_traffic(
    s: Shape, comm: Communication, m: Machine, facts: Facts, x: Exchange, apart: bool = False
) -> MoeTraffic:
    """Coefficients (s) of dispatch and combine: fixed, per token of the busiest die, per row of the
    hottest expert die. A token has `top_k` messages to `x.peers` dies; without fused operators, and
    between slowly joined nodes, all tokens go to all dies. apart: transfers between nodes run at
    the same time as those inside."""
    message_bytes = dispatch_bytes(s, comm.early_quantisation, m.message_scale_bytes)
    answer_bytes = combine_bytes(s)
    if not comm.fused and m.family == "ascend" and x.inside_bytes_per_s > 0.0:
        return _traffic_in_rounds(s, comm, m, x, apart)
    launch_s, round_s = launch_and_round_s(m, facts)
    quantise_s = m.fitted["quantise"] if m.family == "ascend" and comm.early_quantisation else 0.0
    start_s = launch_s + x.latency_s + round_s * math.log2(x.peers)
    dispatch, combine = x.dispatch or Measured(start_s, 1.0), x.combine or Measured(start_s, 1.0)
    dispatch_bytes_per_s, combine_bytes_per_s = (
        way.gain * x.rate_bytes_per_s for way in (dispatch, combine)
    )
    remote_messages = s.top_k * x.remote
    chunked_start_s = host_s = 0.0
    if not comm.fused:
        # An all-to-all-v through the copy engine has a start for every peer.
        host_s, path = facts.si("operators.unfused.sync"), "operators.unfused"
        chunked_start_s = x.peers / facts[f"{path}.channels"].value * facts.si(f"{path}.start")
    return MoeTraffic(
        Transfer(
            fixed=dispatch.start_s + 2.0 * chunked_start_s,
            message=s.top_k * quantise_s,
            token=remote_messages * message_bytes / dispatch_bytes_per_s,
            row=x.remote * message_bytes / dispatch_bytes_per_s,
        ),
        Transfer(
            fixed=combine.start_s + chunked_start_s,
            token=remote_messages * answer_bytes / combine_bytes_per_s,
            row=x.remote * answer_bytes / combine_bytes_per_s,
        ),
        host_s,
    )


def gathered_traffic(
    s: Shape, m: Machine, facts: Facts, x: Exchange, adding_bytes_per_s: float,
    library: bool = False, times: float = 1.0,
) -> MoeTraffic:  # fmt: skip
    """Coefficients of dispatch as a gather of all hidden states on all dies, and of combine as a
    reduction of the experts' sums: an all-reduce in two halves (vLLM without expert parallelism).
    Every die counts as many tokens as the fullest, because engines pad. library: whether dies call
    NCCL; times: number of collectives in each half."""
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    collective = half_all_reduce(m, facts, x, library).collective(x.peers * hidden_bytes * x.remote)
    transfer = Transfer(
        fixed=times * collective.fixed, token=times * collective.token,
        beyond=collective.beyond, saved=times * collective.saved,
    )  # fmt: skip
    sum_s_per_token = transfer.token + x.peers * hidden_bytes / adding_bytes_per_s
    return MoeTraffic(transfer, replace(transfer, token=sum_s_per_token))


def _traffic_in_rounds(
    s: Shape, comm: Communication, m: Machine, x: Exchange, apart: bool
) -> MoeTraffic:
    """Coefficients of an all-gather before the experts and a reduce-scatter after them, in rounds,
    as omni-infer does on Atlas A2 (communication_op.py, all_gather_round_pipeline): tokens are
    gathered inside a node; those of each other node come by a swap with the die at the same place
    there. Experts' numbers and weights are gathered in two more stages. apart: transfers between
    nodes run at the same time as those inside."""
    token_bytes = s.hidden * (1.0 if comm.early_quantisation else ACTIVATION_BYTES)
    far_nodes, node_peers = x.nodes - 1, x.peers // x.nodes - 1

    def barrier_s(peers: int) -> float:
        """Seconds of start and barrier of one collective among a number of dies."""
        return m.fitted["comm_fixed"] + x.latency_s + m.fitted["barrier_round"] * math.log2(peers)

    swap_s = 0.0 if apart else far_nodes * barrier_s(2)
    fixed_s = x.nodes * barrier_s(node_peers + 1) + swap_s
    far_s_per_byte = far_nodes / x.beyond_bytes_per_s
    near_s_per_byte = node_peers * x.nodes / x.inside_bytes_per_s
    s_per_byte = max(far_s_per_byte, near_s_per_byte) if apart else far_s_per_byte + near_s_per_byte
    return MoeTraffic(
        Transfer(
            fixed=fixed_s + barrier_s(node_peers + 1) + barrier_s(x.nodes),
            message=m.fitted["quantise"] if comm.early_quantisation else 0.0,
            token=token_bytes * s_per_byte,
        ),
        Transfer(fixed=fixed_s, token=combine_bytes(s) * s_per_byte),
    )
