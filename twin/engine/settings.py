"""Numbers of a run, each declared once with how it is computed from a scenario that is set up."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TypeVar

import numpy as np

from twin.engine import codes as w
from twin.engine.clock import WINDOWS, steps_in
from twin.engine.setup import Setup
from twin.hardware.placement import Instance
from twin.hardware.prices import nic, pool_read, port_rates
from twin.kernels.buffers import Columns, number
from twin.kernels.rng import stream_key
from twin.model.offload import handed_and_moved_bytes
from twin.policies.router import FRONTS, RANK_CHOICES, ROUTERS
from twin.scenario import copies_kv, pools_by_role, supernodes_apart

T = TypeVar("T", int, float)
LOOKS = 8  # at every instance, in each window of the record


class Source:
    """Set-up and derived values from which the numbers of a run are computed."""

    def __init__(self, setup: Setup) -> None:
        """Derive from a set-up the values that several numbers of the run need."""
        self.setup, s = setup, setup.scenario
        self.s, self.d, self.costs, memory_pool = s, s.deployment, setup.costs, s.memory_pool
        self.prefill, self.decode = setup.of_role("prefill"), setup.of_role("decode")
        self.closed_loop = s.workload.arrivals == "closed_loop"
        self.patient = s.clients.timeout_s > 0.0 or s.clients.answer_timeout_s > 0.0
        self.client_retries = s.clients.retries if setup.dynamic else 0
        self.order = w.ORDERS[s.admission.order] if len(s.tenants) > 1 else w.FIFO
        self.colocated = self.d.mode == "colocated"
        self.prompt_row = len(self.prefill) if self.colocated else 0
        prefill_pool, colocated_pool = self.d.prefill, self.d.colocated
        self.budget = prefill_pool.tokens_per_npu * prefill_pool.npus_per_instance
        self.chunk_tokens = prefill_pool.chunk_tokens
        if self.colocated:
            self.budget = colocated_pool.chunk_tokens_per_npu * colocated_pool.npus_per_instance
            self.chunk_tokens = self.budget // self.decode[0].dies * setup.rank_dies
        self.data_parallel = prefill_pool.attention == "dp" and not self.colocated
        self.even = prefill_pool.dp_balance == "attention"
        self.pooled = memory_pool.enabled and self.d.mode != "decode_only"
        self.several = memory_pool.enabled and setup.memory_pools > 1
        self.keep_answers = memory_pool.enabled and memory_pool.answers and bool(self.prefill)
        self.block_bytes = self.costs.held_bytes(setup.requests.block_tokens)

    def front_code(self) -> int:
        """Code of the front router's policy, as in FRONTS; 0 without one."""
        return FRONTS[self.s.router.front] if supernodes_apart(self.s) else 0

    def sample_steps(self) -> int:
        """Steps between two samples of the instances."""
        return max(1, steps_in(self.s.horizon_s, self.s.step_s) // (LOOKS * WINDOWS))

    def dies(self, instances: list[Instance]) -> int:
        """Number of dies of one of these instances, which are all alike; 1 for an empty list."""
        return instances[0].dies if instances else 1

    def ranks(self) -> int:
        """Number of ranks of a decode instance; 1 without one."""
        return self.dies(self.decode) // self.setup.rank_dies

    def kv_tokens(self, dies: int) -> float:
        """Tokens whose KV fits on `dies` dies of a prefill instance; infinite without prefill."""
        prefill_role = self.costs.prefill_role
        return math.inf if prefill_role is None else float(prefill_role.kv_tokens_per_rank) * dies

    def transfer_latency_s(self) -> float:
        """Latency of a KV transfer from prefill to decode (s)."""
        return nic(self.setup.fabric, self.setup.first_die, self.d.kv_transfer_plane).latency_s

    def die_shares(self) -> tuple[float, float]:
        """(share of a request's KV, share of its state) that each die of a decode rank holds."""
        decode_role = self.costs.decoding_role
        return (decode_role.die_kv, decode_role.die_state) if decode_role else (1.0, 1.0)

    def port_share(self) -> float:
        """Share of a request's KV that passes its most loaded port, if no other transfer runs."""
        rank_dies, plane = self.setup.rank_dies, self.d.kv_transfer_plane
        dies_at_port = nic(self.setup.fabric, self.setup.first_die, plane).shared_by_dies
        dies_served = max(math.ceil(rank_dies / self.costs.senders), min(rank_dies, dies_at_port))
        return self.die_shares()[0] * dies_served

    def fetch_latency_s(self) -> float:
        """Latency (s) of a read from the memory pool; 0 without one, or if no instance reads it."""
        if not self.s.memory_pool.enabled or self.costs.prefilling_role is None:
            return 0.0
        first_instance = self.setup.instances[0]
        npu_dies = first_instance.die_of_rank[: self.setup.dies_per_npu(first_instance.role)]
        return pool_read(self.setup.fabric, npu_dies, self.s.memory_pool.read_plane).latency_s

    def kv_meets_exchange(self) -> bool:
        """Whether KV hand-off shares its ports with dispatch and combine."""
        plane = self.d.kv_transfer_plane
        return self.d.mode == "disaggregated" and plane == self.setup.fabric.scale_up_plane

    def ssd_bytes_per_s(self) -> float:
        """Bytes/s of SSD writes of one instance; all together get half of the VPC plane's rate."""
        instances = self.setup.instances[: self.setup.declared]
        reader_count = max(sum(instance.role != "decode" for instance in instances), 1)
        return 0.5 * float(port_rates(self.setup.fabric, "vpc").sum()) / reader_count

    def in_host_share(self) -> float:
        """Share of a decoding request's KV that lies in host memory."""
        if (decode_role := self.costs.decoding_role) is None:
            return 0.0
        return decode_role.kv_in_host / decode_role.kv_bytes_per_token

    def token_bytes(self) -> tuple[float, float]:
        """(KV bytes of a token handed to decode, bytes of a token of offloaded attention)."""
        return handed_and_moved_bytes(self.costs.deployed, self.costs.kv_bytes_per_token)


def from_scenario(kind: type[T], path: str) -> T:
    """Declare a number of the run, of type `kind`: the value of the scenario's field at `path`."""
    return number(kind, f"{path} of the scenario.", lambda source: attrgetter(path)(source.s))


def random_key(stream: str, meaning: str) -> np.uint64:
    """Declare the key, u8, of the scenario's random stream of this name."""
    return number(np.uint64, meaning, lambda source: stream_key(source.s.seed, stream))


class Settings(Columns):
    """Numbers of a run: one compiled engine serves all scenarios. Units are in the names."""

    horizon_s = from_scenario(float, "horizon_s")
    warmup_s = from_scenario(float, "warmup_s")
    step_s = from_scenario(float, "step_s")
    sample_every = number(int, "Steps between two looks at instances.", lambda f: f.sample_steps())

    # Clients, tenants and admission.
    closed_loop = number(int, "Whether clients wait for answers.", lambda f: f.closed_loop)
    think_s = from_scenario(float, "workload.think_s")
    dynamic = number(int, "Whether rows are made as clients come.", lambda f: f.setup.dynamic)
    patient = number(int, "Whether clients leave after a time-out.", lambda f: f.patient)
    timeout_s = from_scenario(float, "clients.timeout_s")
    answer_timeout_s = from_scenario(float, "clients.answer_timeout_s")
    client_retries = number(int, "How often a client tries again.", lambda f: f.client_retries)
    backoff_s = from_scenario(float, "clients.backoff_s")
    backoff_most_s = from_scenario(float, "clients.backoff_most_s")
    gated = number(int, "Whether requests are lined up or refused.", lambda f: f.setup.gated)
    order = number(int, "Who goes first, as in `codes.ORDERS`.", lambda f: f.order)
    shed_at = from_scenario(float, "admission.shed_at")
    tenants = number(int, "Tenants.", lambda f: max(len(f.s.tenants), 1))
    api_servers = from_scenario(int, "front_end.api_servers")
    service_s = number(float, "Of an API server.", lambda f: f.s.front_end.service_ms * 1e-3)
    tokenise_s = number(float, "Of a prompt token.", lambda f: f.costs.tokenise_s)

    # Instances. Rows of `Prefill` are those that compute prompts, rows of `Decode` the others.
    has_prefill = number(int, "Whether prompts are computed.", lambda f: bool(f.prefill))
    has_decode = number(int, "Whether answers are computed.", lambda f: bool(f.decode))
    colocated = number(int, "Whether the same instances do both.", lambda f: f.colocated)
    prefills = number(int, "Instances that compute prompts.", lambda f: max(len(f.prefill), 1))
    prompt_row = number(int, "Of these the first of `Instances`.", lambda f: f.prompt_row)
    prefill_ranks = number(int, "Dies of a prefill instance.", lambda f: f.dies(f.prefill))
    stages = number(int, "Pipeline stages.", lambda f: 1 if f.colocated else f.d.prefill.pp_stages)
    decode_ranks = number(int, "Ranks of a decode instance.", lambda f: f.ranks())
    decode_dies = number(int, "Dies of a decode instance.", lambda f: f.dies(f.decode))
    retries = from_scenario(int, "recovery.retries")

    # Routing and batching.
    front = number(int, "As in FRONTS; 0: no front router.", lambda f: f.front_code())
    front_report_s = from_scenario(float, "router.front_report_s")
    router_policy = number(int, "As in ROUTERS.", lambda f: ROUTERS[f.s.router.policy])
    rank_choice = number(int, "As named.", lambda f: RANK_CHOICES[f.d.decode.rank_choice])
    prefill_budget = number(int, "Prompt tokens of a batch.", lambda f: f.budget)
    chunk_tokens = number(
        int, "Of a chunk of a prompt, 0: whole; colocated: of a rank.", lambda f: f.chunk_tokens
    )
    chunk_evening = number(
        float, "How far later chunks are shorter, so that they take as long.",
        lambda f: 0.0 if f.colocated or not f.chunk_tokens else f.d.prefill.chunk_evening,
    )  # fmt: skip
    prompt_ranks = number(
        int, "Ranks that split a prompt.",
        lambda f: pools_by_role(f.s)[f.setup.roles[-1]].prompt_ranks,
    )  # fmt: skip
    prompt_delay = from_scenario(int, "deployment.colocated.prompt_delay")
    receive_every = from_scenario(int, "deployment.colocated.receive_every")
    runs_ahead = number(int, "A pass is formed while one runs.", lambda f: f.costs.runs_ahead)
    first_by_decode = number(int, "Decode's loop gives it.", lambda f: f.costs.first_by_decode)
    first_after_pass = number(int, "When prefill's looks.", lambda f: f.costs.first_after_pass)
    data_parallel_attention = number(int, "A prompt's, on one die.", lambda f: f.data_parallel)
    even_attention = number(int, "Dies get equal attention, prompts in chunks.", lambda f: f.even)
    prompt_kv_tokens = number(float, "Longest prompt that fits.", lambda f: f.kv_tokens(1))
    batch_kv_tokens = number(float, "KV of a batch.", lambda f: f.kv_tokens(f.setup.kv_cells))
    draft_tokens = from_scenario(int, "deployment.decode.mtp_draft_tokens")
    acceptance = number(float, "Share of drafts accepted.", lambda f: f.costs.mtp_acceptance)

    # The memory pool.
    pool_enabled = number(int, "Whether prompts are looked up.", lambda f: f.pooled)
    pools_differ = number(int, "Whether instances differ in what it holds.", lambda f: f.several)
    in_hbm = number(int, "Whether HBM has a prefix cache.", lambda f: f.setup.in_hbm)
    kv_cells = number(int, "Of an instance, with a prefix cache each.", lambda f: f.setup.kv_cells)
    held_block_tokens = number(
        float, "KV tokens that a block takes of HBM.",
        lambda f: f.block_bytes / f.costs.kv_bytes_per_token,
    )  # fmt: skip
    layerwise = from_scenario(int, "memory_pool.layerwise")
    namespaces = number(int, "Rows of a memory pool.", lambda f: f.setup.namespaces)
    keep_answers = number(int, "Whether KV of answers is stored.", lambda f: f.keep_answers)
    block_tokens = number(int, "Of a KV block.", lambda f: f.setup.requests.block_tokens)
    block_bytes = number(float, "KV of a block.", lambda f: f.block_bytes)
    page_tokens = from_scenario(int, "memory_pool.block_tokens")
    copies_kv = number(int, "KV goes to and from host memory.", lambda f: copies_kv(f.s))
    kv_on_die = number(
        float, "Of a decoding request's KV, the share that is not in host memory.",
        lambda f: 1.0 - f.in_host_share(),
    )  # fmt: skip
    swap_bytes = number(
        float, "Of a die's KV in host memory, at most.",
        lambda f: 1e9 * f.d.decode.swap_gb_per_die if f.decode else 0.0,
    )  # fmt: skip
    swap_share = number(
        float, "Of a rank's KV space, for requests that come back from there.",
        lambda f: 1.0 - f.costs.deployed.facts.si("operators.swap.watermark"),
    )  # fmt: skip
    rank_dies = number(int, "Dies of a decode rank.", lambda f: f.setup.rank_dies)
    die_kv = number(float, "Of a request's KV, on a die of its rank.", lambda f: f.die_shares()[0])
    die_state = number(float, "Of its state of linear attention.", lambda f: f.die_shares()[1])
    senders = number(int, "Prefill dies that send to a rank.", lambda f: f.costs.senders)
    through_port = number(
        float, "Of a request's KV, through the fullest port of a lone transfer.",
        lambda f: f.port_share(),
    )  # fmt: skip
    fetch_latency_s = number(float, "Of a read.", lambda f: f.fetch_latency_s())
    pool_plane = number(int, "As in PLANES.", lambda f: w.PLANES.index(f.s.memory_pool.read_plane))
    ssd_write_bytes_per_s = number(float, "Of an instance.", lambda f: f.ssd_bytes_per_s())

    # Bytes that travel for a token.
    kv_bytes_per_token = number(float, "KV handed to decode.", lambda f: f.token_bytes()[0])
    held_kv = number(
        float, "Bytes of KV as decode has it over those that are handed over.",
        lambda f: f.costs.held_kv,
    )  # fmt: skip
    window_bytes_per_token = number(
        float, "As KV, of a window's tokens.", lambda f: f.costs.window_bytes_per_token
    )
    window = number(int, "Tokens of a window.", lambda f: f.costs.shape.window)
    state_bytes = number(float, "As KV, of a request.", lambda f: f.costs.state_bytes)
    offloaded_bytes_per_token = number(float, "There and back.", lambda f: f.token_bytes()[1])
    transfer_latency_s = number(float, "Of a KV transfer.", lambda f: f.transfer_latency_s())
    kv_plane = number(int, "As in PLANES.", lambda f: w.PLANES.index(f.d.kv_transfer_plane))
    kv_among_experts = number(int, "On the ports of experts.", lambda f: f.kv_meets_exchange())

    key_route_a = random_key("router.first", "Router, first draw.")
    key_route_b = random_key("router.second", "Router, second draw.")
    key_accept = random_key("mtp.acceptance", "MTP acceptance.")
    key_round = random_key("mtp.rounding", "Rounding of iterations.")
    key_think = random_key("clients.think", "Pauses of clients.")
    key_backoff = random_key("clients.backoff", "Pauses before clients try again.")
