"""What a chip's operators reach, fitted by the twin's formulas; errors are of rows not fitted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize

from twin.extras.operator_tables.tables import Table
from twin.model.formats import ACTIVATION_BYTES, FORMATS, product_format
from twin.scenario.words import numbered

Floats = NDArray[np.float64]
HELD, SEED = 0.2, 26
HIDDEN, TOP_K = 7168.0, 8.0  # of the exchanges that are fitted
FEWEST = 10  # rows of a table that are worth a fit
SENT = ("exchange", "alltoall")  # operators that compute nothing
TILES = ((1, 1), (16, 16), (32, 32), (64, 128), (128, 128))  # rows of one that fits, of more
POWERS = (2.0, 3.0, 4.0, 6.0)  # by which computing and reading KV add up
SPREAD = "deepepmoe"  # the kernel of experts that are spread over dies by DeepEP
MASKED = "deepgemm"  # a kernel that passes over all experts of a die, used or not
OTHER_FFN = ("nongated", "situ_as_silu")  # in names of kernels: experts without SwiGLU
SUMMED = ", answers summed"  # of a kernel whose dies are one rank: with a term for a row's bytes
# Parameters that are no shares.
UNBOUNDED = ("start", "each", "rate", "later", "gain", "edge", "host", "passing", "row")
LATENT, HEAD = 192.0 + 128.0, 2.0 * 128.0  # values of a query-key pair and head: keys and values
VECTOR = 0.8  # of the memory's rate, kernels that only move data


@dataclass(frozen=True, slots=True)
class Peaks:
    """A chip's published peaks: FLOP/s by format and memory bytes/s; the dies of a node."""

    flops: Mapping[str, float]
    memory: float
    node: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """Facts of one table: shares of peaks, seconds, and errors of held-back rows."""

    operator: str
    format: str
    engine: str  # with its release, "sglang 0.5.14"
    part: str  # of the table: a kernel, or a way to compute
    facts: Mapping[str, float]
    rows: int
    held: int  # rows of these that were held back
    mean: float  # absolute error of held-back rows
    worst: float

    @property
    def name(self) -> str:
        """Name of the table: 'gemm fp8, sglang 0.5.14'."""
        title = f"{self.operator} {self.format}, {self.engine}"
        return f"{title}, {self.part}" if self.part else title


def fit_table(table: Table, peaks: Peaks, share: float = HELD, seed: int = SEED) -> list[Fitted]:
    """Facts fitted to each part of a table; empty for too few rows or a format without a peak.
    share: share of rows left out of the fit, drawn by `seed`."""
    if table.operator not in SENT and product_format(table.format) not in peaks.flops:
        return []
    if any(fmt.unpacked == table.format and fmt.operand in peaks.flops for fmt in FORMATS.values()):
        return []  # how chips without such weights compute, which this one is not
    parts = FITS[table.operator](table.rows, peaks, table.format)
    return [_fit_part(table, part, share, seed) for part in parts if part[1].size >= FEWEST]


# A way to predict: from the parameters by name to the seconds of every row.
Predict = Callable[[Mapping[str, float]], Floats]
Candidates = list[tuple[Predict, Mapping[str, float]]]
Values = Mapping[str, float]  # where a fit begins, by parameter
Part = tuple[str, Floats, Candidates, Values]  # name, measured seconds f8[rows], ...


def _fit_part(table: Table, part: Part, held_share: float, seed: int) -> Fitted:
    """Fit of a part of a table with the candidate of least log error on its rows; held_share: share
    of rows that are drawn by `seed`, left out of the fit and used for the errors."""
    part_name, measured_s, candidates, start_values = part
    is_held = np.random.default_rng(seed).random(measured_s.size) < held_share
    parameters = list(start_values)
    best_fit: tuple[float, Mapping[str, float], Floats] | None = None
    for predict, fixed_facts in candidates:

        def log_error(log_values: Floats, predict: Predict = predict) -> float:
            """Mean absolute log error on the fitted rows, with a penalty for shares above 1."""
            values = dict(zip(parameters, np.exp(log_values), strict=True))
            shares = (value for name, value in values.items() if name not in UNBOUNDED)
            excess = sum(max(0.0, share - 1.0) for share in shares)
            log_errors = np.log(predict(values)[~is_held] / measured_s[~is_held])
            return float(np.abs(log_errors).mean()) + excess

        log_start = np.log(np.array(list(start_values.values())))
        solution = minimize(log_error, log_start, method="Nelder-Mead",
                        options={"maxiter": 900, "xatol": 1e-4, "fatol": 1e-6})  # fmt: skip
        if best_fit is None or solution.fun < best_fit[0] - 1e-3:  # a simpler choice stands first
            fitted_values = dict(zip(parameters, np.exp(solution.x).tolist(), strict=True))
            best_fit = float(solution.fun), {**fitted_values, **fixed_facts}, predict(fitted_values)
    assert best_fit is not None
    held_errors = np.abs(best_fit[2][is_held] / measured_s[is_held] - 1.0)
    return Fitted(
        table.operator, table.format, table.engine, part_name, best_fit[1], measured_s.size,
        int(is_held.sum()), float(held_errors.mean()), float(held_errors.max()),
    )  # fmt: skip


def _columns(rows: pl.DataFrame, *names: str) -> list[Floats]:
    """These columns of a table, each as f8[rows]."""
    return [rows[column].cast(pl.Float64).to_numpy() for column in names]


def computed_rows(rows: Floats, tile: tuple[int, int]) -> Floats:
    """Rows f8[n] that a matrix product computes for `rows` f8[n], in tiles: if they fit into the
    small tile one of these, else large ones; tile: rows of a small and of a large tile."""
    tile_rows = np.where(rows <= tile[0], tile[0], tile[1])
    return np.asarray(tile_rows * np.ceil(np.maximum(rows, 1e-9) / tile_rows))


def _roofline_s(computing_s: Floats, moving_s: Floats, power: float) -> Floats:
    """Seconds f8[rows] of computing and moving data at once: the longer of both, and up to a factor
    of 2 ** (1 / power) more where they are equal."""
    return np.asarray((computing_s**power + moving_s**power) ** (1.0 / power))


def _gemm_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str, has_scales: bool = False) -> list[Part]:
    """Part to fit: a product of m rows with k x n weights in format `fmt`. Parameters: start (s),
    shares of peak and bandwidth; with `has_scales` bytes that scaling moves per value of a row."""
    wide_rows = rows.filter(
        (pl.col("n") >= 1024) & (pl.col("k") >= 512) & (pl.col("n") * pl.col("k") >= 1 << 21)
        & (pl.col("n") <= 51_200) & (pl.col("k") <= 51_200)
    )  # fmt: skip
    m, n, k, latency_ms = _columns(wide_rows, "m", "n", "k", "latency")
    entry_bytes = FORMATS[fmt].entry
    weight_bytes = FORMATS[fmt].weight_bytes
    moving_s = (n * k * weight_bytes + m * (k * entry_bytes + n * ACTIVATION_BYTES)) / peaks.memory
    # The measured call scales BF16 rows first; the twin books that as element-wise work of its own.
    scaled_bytes = np.zeros_like(m) if fmt == "bf16" else m * k * (ACTIVATION_BYTES + entry_bytes)
    scaling_s = scaled_bytes / (peaks.memory * VECTOR)
    s_per_scaling_byte = m * k / peaks.memory  # for each byte that scaling moves per value

    def predict(values: Mapping[str, float], tile: tuple[int, int]) -> Floats:
        """Seconds f8[rows] by the `values` of parameters; tile: its small and its large size."""
        compute_s = 2.0 * computed_rows(m, tile) * n * k / peaks.flops[product_format(fmt)]
        roofs_s = _roofline_s(compute_s / values["compute"], moving_s / values["bandwidth"], 2.0)
        rescaling_s = values.get("row", 0.0) * s_per_scaling_byte
        return np.asarray(values["start"] + roofs_s + scaling_s + rescaling_s)

    start_values = {"start": 5e-6, "compute": 0.6, "bandwidth": 0.8}
    start_values |= {"row": 3.0} if has_scales else {}
    return [("", latency_ms * 1e-3, _tile_candidates(predict), start_values)]


def _tile_candidates(predict: Callable[..., Floats]) -> Candidates:
    """A candidate of a fit for each pair of TILES; predict: seconds by parameters and `tile`."""
    return [(partial(predict, tile=(small, large)), {"tile_small": small, "tile_large": large})
            for small, large in TILES]  # fmt: skip


def _grouped_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Parts to fit, by kernel: the products gate, up and down of a die's experts, with equal rows
    per expert; for kernels whose dies are one rank also with the sum of answers."""
    even_rows = rows.filter(
        pl.col("distribution").is_in(["balanced", "uniform"])
        & (pl.col("inter_size") / pl.col("moe_tp_size") >= 256) & (pl.col("num_experts") >= 32)
    )  # fmt: skip
    # Engines' own tables with experts on several dies do not say which rows a die has.
    if "deepepmoe" not in even_rows["kernel_source"].unique().to_list():
        even_rows = even_rows.filter(pl.col("moe_ep_size") == 1)
    parts = []
    for (kernel,), kernel_rows in sorted(
        even_rows.group_by(["kernel_source"]), key=lambda each: str(each[0])
    ):
        if not any(word in str(kernel) for word in OTHER_FFN):
            parts.append(_grouped_part(str(kernel), kernel_rows, peaks, fmt))
            if kernel != SPREAD:
                parts.append(_grouped_part(f"{kernel}{SUMMED}", kernel_rows, peaks, fmt))
    return parts


def _grouped_part(
    name: str, rows: pl.DataFrame, peaks: Peaks, fmt: str, ordered: bool = False
) -> Part:
    """Part to fit: grouped products of the experts by kernel `name`; ordered: it also sorts rows by
    expert. Parameters: start (s), shares of peak and memory bandwidth, and what the kernel adds."""
    hidden, inner, tp, top_k, experts, tokens, ep, latency_ms = _columns(
        rows, "hidden_size", "inter_size", "moe_tp_size", "topk", "num_experts", "num_tokens",
        "moe_ep_size", "latency",
    )  # fmt: skip
    inner = inner / tp
    experts_of_die, pairs = experts / ep, tokens * top_k / ep
    experts_used = np.minimum(experts_of_die, pairs)
    n_weights = 3.0 * hidden * inner
    entry_bytes = FORMATS[fmt].entry
    written_bytes = ACTIVATION_BYTES * (2.0 * inner + hidden)
    moving_s = experts_used * n_weights * FORMATS[fmt].weight_bytes
    moving_s = (moving_s + pairs * (entry_bytes * (hidden + inner) + written_bytes)) / peaks.memory
    swiglu_bytes = pairs * (2.0 * ACTIVATION_BYTES * inner + entry_bytes * inner)
    swiglu_s = swiglu_bytes / (peaks.memory * VECTOR)  # of SwiGLU
    if ordered:  # rows are copied into the order of experts, and answers added up out of it
        copied_bytes = 2.0 * entry_bytes * hidden + ACTIVATION_BYTES * hidden * (1.0 + 1.0 / top_k)
        swiglu_s = swiglu_s + pairs * copied_bytes / (peaks.memory * VECTOR)

    def predict(values: Mapping[str, float], tile: tuple[int, int]) -> Floats:
        """Seconds f8[rows] by the `values` of parameters; tile: its small and its large size."""
        expert_rows = computed_rows(pairs / experts_used, tile)
        compute_s = 2.0 * experts_used * expert_rows * n_weights / peaks.flops[product_format(fmt)]
        roofs_s = _roofline_s(compute_s / values["compute"], moving_s / values["bandwidth"], 2.0)
        summing_s = values.get("row", 0.0) * pairs * hidden / peaks.memory
        start_s = values["start"] + values.get("each", 0.0) * experts_of_die
        sorting_s = values.get("passing", 0.0) * tokens
        return np.asarray(start_s + roofs_s + swiglu_s + (sorting_s + summing_s))

    start_values = {"start": 2e-5, "compute": 0.6, "bandwidth": 0.8}
    if ordered:
        start_values["passing"] = 8e-9
    elif name.endswith(SUMMED):  # bytes for each number of a row's answer, after the products
        start_values["row"] = 4.0
    if name.startswith(MASKED):
        start_values["each"] = 5e-7
    return name, latency_ms * 1e-3, _tile_candidates(predict), start_values


def _mla_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Parts to fit: decode's MLA core of 64 or 128 heads, from 1,024 cached tokens on."""
    context = pl.col("isl") + pl.col("step")
    core_rows = rows.filter(pl.col("num_heads").cast(pl.Int64).is_in([64, 128]) & (context >= 1024))
    columns = ("num_heads", "batch_size", "isl", "step", "latency")
    heads, batch, isl, step, latency_ms = _columns(core_rows, *columns)
    cached_tokens = batch * (isl + step)
    moving_s = cached_tokens * 576.0 * FORMATS[fmt].weight_bytes / peaks.memory
    start_values = {"start": 1.5e-5, "compute": 0.6, "bandwidth": 0.8}
    flops = cached_tokens * heads * 2.0 * (2 * 512 + 64)
    # 8-bit KV may still be computed with in BF16.
    return [
        _core_part(compute_fmt, flops / peaks.flops[compute_fmt], moving_s, latency_ms,
                   start_values)
        for compute_fmt in dict.fromkeys(("bf16", fmt))
    ]  # fmt: skip


def _core_part(
    compute_fmt: str, compute_s: Floats, moving_s: Floats, latency_ms: Floats, start_values: Values
) -> Part:
    """Part to fit: decode's attention core, computed in format `compute_fmt`. Parameters: start
    (s), shares of peak and memory bandwidth. compute_s, moving_s: f8[rows] at the peaks;
    latency_ms: f8[rows], measured; start_values: where the fit begins."""

    def predict(values: Mapping[str, float], power: float) -> Floats:
        """Seconds f8[rows] by the `values` of parameters; power: sharpness of the roof."""
        roofs_s = _roofline_s(compute_s / values["compute"], moving_s / values["bandwidth"], power)
        return np.asarray(values["start"] + roofs_s)

    candidates: Candidates = [(partial(predict, power=power), {"power": power}) for power in POWERS]
    return f"computed in {compute_fmt}", latency_ms * 1e-3, candidates, start_values


def _gqa_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Part to fit: decode's GQA core in BF16, heads of 128, 1,024 cached tokens or more."""
    group_size = pl.col("num_heads") / pl.col("num_key_value_heads")
    core_rows = rows.filter(
        (pl.col("head_dim") == 128) & (pl.col("window_size") == 0) & group_size.is_between(2, 16)
        & (pl.col("num_key_value_heads") <= 8) & (pl.col("isl") + pl.col("step") >= 1024)
        & ~pl.col("kernel_source").str.contains("triton")
    )  # fmt: skip
    columns = ("num_heads", "num_key_value_heads", "batch_size", "isl", "step", "latency")
    heads, kv_heads, batch, isl, step, latency_ms = _columns(core_rows, *columns)
    cached_tokens = batch * (isl + step)
    moving_s = cached_tokens * kv_heads * HEAD * FORMATS[fmt].weight_bytes / peaks.memory
    compute_s = cached_tokens * heads * 2.0 * HEAD / peaks.flops["bf16"]
    start_values = {"start": 1e-5, "compute": 0.5, "bandwidth": 0.8}
    return [_core_part("bf16", compute_s, moving_s, latency_ms, start_values)]


def _prompt_core_parts(
    head_values: float, is_chosen: pl.Expr, rows: pl.DataFrame, peaks: Peaks, fmt: str
) -> list[Part]:
    """Part to fit: prefill's attention core of whole prompts, in the rows that `is_chosen` selects.
    head_values: dimensions of a head's key and value together. Parameters: start (s), share of
    peak, further query-key pairs per token."""
    columns = ("num_heads", "batch_size", "isl", "latency")
    heads, batch, isl, latency_ms = _columns(rows.filter(is_chosen), *columns)
    s_per_pair = heads * 2.0 * head_values / peaks.flops["bf16"]
    tokens = batch * isl

    def predict(parameters: Mapping[str, float]) -> Floats:
        """Seconds f8[rows] by the values of `parameters`."""
        pairs = tokens * (0.5 * (isl + 1.0) + parameters["edge"])
        return np.asarray(parameters["start"] + s_per_pair * pairs / parameters["compute"])

    start_values = {"start": 1.5e-5, "compute": 0.6, "edge": 500.0}
    return [("computed in bf16", latency_ms * 1e-3, [(predict, {})], start_values)]


def _host_part(rows: pl.DataFrame) -> Part:
    """Part to fit: calls whose time is that of their launch by the host. Parameter: host (s)."""
    (latency_ms,) = _columns(rows, "latency")
    candidates: Candidates = [(lambda values: np.full_like(latency_ms, values["host"]), {})]
    return "host", latency_ms * 1e-3, candidates, {"host": 5e-4}


def _contiguous_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Parts to fit of prefill's grouped products under even load, rows sorted by expert: the share
    of the peak that long calls reach, and the host's time of short ones. The table's sort processes
    tokens of all dies, which no engine does: its seconds per token are the parameter `passing`."""
    even_rows = rows.filter(pl.col("distribution") == "uniform")
    if not even_rows.height:
        return []
    ep, tokens = pl.col("moe_ep_size"), pl.col("num_tokens")
    few_rows = even_rows.filter(tokens <= 32 * ep)
    host_ms = float(few_rows["latency"].cast(pl.Float64).median() or 0.0)  # type: ignore[arg-type]
    long_calls = even_rows.filter(pl.col("latency") >= 2.0 * host_ms)
    part = _grouped_part("deepepmoe", long_calls, peaks, fmt, ordered=True)
    return [part, _host_part(few_rows)]


def _collective_parts(
    chosen: pl.Expr, passes: float, start: float, rows: pl.DataFrame, peaks: Peaks, fmt: str
) -> list[Part]:
    """Parts to fit, one for each number of dies: collectives of 1 KB to 256 MB by the faster of two
    kernels. chosen: filter of rows; passes: how often a message's bytes leave a die; start: first
    guess of the start (s). A message's size is its number of values: in NCCL's table half the bytes
    take half the time."""
    start_values = {"start": start, "rate": 1.5e11, "later": 2e-5, "gain": 2.0}
    parts: list[Part] = []
    sized_rows = rows.filter(chosen & pl.col("message_size").is_between(1 << 9, 1 << 27))
    for (dies,), dies_rows in sorted(sized_rows.group_by(["num_gpus"])):
        message_sizes, latency_ms = _columns(dies_rows, "message_size", "latency")
        sent_bytes = passes * (1.0 - 1.0 / float(dies)) * ACTIVATION_BYTES * message_sizes
        predict_one, _ = _rate_candidates(sent_bytes)[0]
        candidates: Candidates = [(predict_one, {"later": 0.0, "gain": 0.0}),
                                  (partial(_faster_s, sent_bytes), {})]  # fmt: skip
        parts.append((numbered(dies, "die"), latency_ms * 1e-3, candidates, start_values))
    return parts


def _faster_s(sent_bytes: Floats, values: Mapping[str, float]) -> Floats:
    """Seconds f8[rows] that the faster of two kernels sends `sent_bytes` f8[rows] in: the second
    starts `later` s later at 1 + `gain` times the rate; values: parameters by name."""
    wire_s = sent_bytes / values["rate"]
    return np.asarray(
        values["start"] + np.minimum(wire_s, values["later"] + wire_s / (1.0 + values["gain"]))
    )


def _rate_candidates(sent_bytes: Floats) -> Candidates:
    """The one candidate of a fit: start (s) plus `sent_bytes` divided by rate (bytes/s)."""
    return [(lambda values: np.asarray(values["start"] + sent_bytes / values["rate"]), {})]


def _exchange_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Parts to fit: dispatch (FP8) and combine (BF16), inside a node and across nodes. Parameters:
    start (s), rate (bytes/s)."""
    parts: list[Part] = []
    chosen_rows = rows.filter((pl.col("hidden_size") == HIDDEN) & (pl.col("num_topk") == TOP_K))
    for is_across in (False, True):
        network_rows = chosen_rows.filter((pl.col("node_num") > 1) == is_across)
        nodes, tokens = _columns(network_rows, "node_num", "num_token")
        leaving_share = 1.0 - (1.0 / nodes if is_across else 1.0 / (nodes * peaks.node))
        network = "across nodes" if is_across else "inside a node"
        # A scale of four bytes for each 128 entries travels with FP8.
        row_bytes_by_phase = {"dispatch": HIDDEN * (1.0 + 4.0 / 128.0), "combine": 2.0 * HIDDEN}
        for phase, row_bytes in row_bytes_by_phase.items():
            phase_s = _columns(network_rows, f"{phase}_avg_t_us")[0] * 1e-6
            start_values = {"start": 2e-5, "rate": 5e10 if is_across else 2e11}
            candidates = _rate_candidates(tokens * TOP_K * leaving_share * row_bytes)
            parts.append((f"{phase} {network}", phase_s, candidates, start_values))
    return parts


def _alltoall_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Parts to fit: TensorRT-LLM's one-sided dispatch (NVFP4, a scale byte per 16 numbers) and
    combine (BF16) inside a node, over as many ranks as a token has experts, or more."""
    parts: list[Part] = []
    chosen_rows = rows.filter(
        (pl.col("kernel_source") == "NVLinkOneSided") & (pl.col("hidden_size") == HIDDEN)
        & (pl.col("topk") == TOP_K) & (pl.col("moe_ep_size") >= TOP_K)
    )  # fmt: skip
    for phase, row_bytes in (("dispatch", HIDDEN * (0.5 + 1.0 / 16.0)), ("combine", 2.0 * HIDDEN)):
        phase_rows = chosen_rows.filter(pl.col("op_name") == f"alltoall_{phase}")
        ranks, tokens, latency_ms = _columns(phase_rows, "moe_ep_size", "num_tokens", "latency")
        candidates = _rate_candidates(tokens * TOP_K * (1.0 - 1.0 / ranks) * row_bytes)
        start_values = {"start": 2e-5, "rate": 5e11}
        parts.append((f"{phase} inside a node", 1e-3 * latency_ms, candidates, start_values))
    return parts


def _sparse_parts(rows: pl.DataFrame, peaks: Peaks, fmt: str) -> list[Part]:
    """Part to fit of the sparse core of long prompts in a module with its projections and, mostly,
    its indexer, whose rates are parameters too: shares of peak and memory, blocks of heads. Each
    token computes all selected places. Modules that only wait for the host are left out."""
    few_tokens = rows.filter(pl.col("batch_size") * pl.col("isl") <= 256)
    host_ms = float(few_tokens["latency"].cast(pl.Float64).median() or 0.0)  # type: ignore[arg-type]
    long_rows = rows.filter(
        pl.col("step") == 0, ~pl.col("kernel_source").str.contains("dense"),
        pl.col("gemm_type") == "fp8_block", pl.col("isl") > SELECTED,
        pl.col("latency") >= 2.0 * host_ms,
    )  # fmt: skip
    heads, batch, isl, latency_ms = _columns(long_rows, "num_heads", "batch_size", "isl", "latency")
    is_glm = long_rows["architecture"].str.starts_with("Glm").to_numpy()
    has_indexer = ~long_rows["op_name"].str.contains("skip").to_numpy()
    hidden, q_lora, key_dim, value_dim, index_heads = (
        np.where(is_glm, *widths)
        for widths in ((6144.0, 7168.0), (2048.0, 1536.0), (192.0, 128.0), (256.0, 128.0),
                        (32.0, 64.0))
    )  # fmt: skip
    tokens, pairs = batch * isl, batch * isl * 0.5 * (isl + 1.0)
    weight_values = hidden * (q_lora + 576.0) + q_lora * heads * (key_dim + 64.0)
    weight_values += heads * 512.0 * (key_dim + value_dim) + heads * value_dim * hidden
    weight_values += has_indexer * (q_lora * index_heads * 128.0 + hidden * (128.0 + index_heads))
    bytes_per_token = 576.0 * FORMATS[fmt].weight_bytes + (64.0 + 16.0) * (fmt != "bf16")
    moving_s = tokens * SELECTED * bytes_per_token / peaks.memory
    pairs_s = has_indexer * pairs * 2.0 * index_heads * 129.0 / peaks.flops["fp8"]

    def predict(values: Mapping[str, float], block: int) -> Floats:
        """Seconds f8[rows] by the `values` of parameters, with heads in blocks."""
        flops = tokens * SELECTED * np.ceil(heads / block) * block * 2.0 * (2 * 512 + 64)
        compute_s = flops / peaks.flops["bf16"]
        core_s = _roofline_s(compute_s / values["compute"], moving_s / values["bandwidth"], 3.0)
        gemm_s = 2.0 * tokens * weight_values / peaks.flops["fp8"] / values["linear"]
        return np.asarray(
            core_s + gemm_s + pairs_s / values["index"] + values["passing"] * tokens * has_indexer
        )

    candidates: Candidates = [
        (partial(predict, block=head_block), {"power": 3.0, "tile_small": head_block})
        for head_block in (1, 64, 128)
    ]
    start_values = {"compute": 0.5, "bandwidth": 0.8, "linear": 0.5, "index": 0.3, "passing": 5e-8}
    return [("computed in bf16", latency_ms * 1e-3, candidates, start_values)]


SELECTED = 2048  # tokens that the indexers of these tables select
LONG = pl.col("isl") >= 256  # prompts
FITS: Mapping[str, Callable[[pl.DataFrame, Peaks, str], list[Part]]] = {
    "gemm": _gemm_parts, "gemm_gqa": partial(_gemm_parts, has_scales=True), "mla": _mla_parts,
    "grouped": _grouped_parts, "contiguous": _contiguous_parts, "gqa": _gqa_parts,
    # Latent attention with 16 heads and more, and heads of 128 without a window.
    "prefill_mla": partial(
        _prompt_core_parts, LATENT, LONG & (pl.col("num_heads").cast(pl.Int64) >= 16)),
    "prefill_gqa": partial(
        _prompt_core_parts, HEAD,
        LONG & (pl.col("head_dim") == 128) & (pl.col("window_size") == 0)
        & (pl.col("num_heads") >= 4) & (pl.col("attn_dtype") == "bfloat16"),
    ),
    "sparse": _sparse_parts, "exchange": _exchange_parts, "alltoall": _alltoall_parts,
    # An attention layer launched kernel by kernel on few tokens: only the host's time counts.
    "eager_mla": lambda rows, peaks, fmt: [_host_part(rows.filter(
        (pl.col("batch_size") * pl.col("isl") <= 128) & (pl.col("num_heads").cast(pl.Int64) == 128)
    ))],
    # All-reduces in a graph; all-gathers and reduce-scatters, half an all-reduce each.
    "collective": partial(
        _collective_parts, pl.col("kernel_source").str.ends_with("graph"), 2.0, 4e-6),
    "gather": partial(
        _collective_parts, pl.col("op_name").is_in(["all_gather", "reduce_scatter"])
        & (pl.col("nccl_dtype") == "half"), 1.0, 1e-5,
    ),
}  # fmt: skip
