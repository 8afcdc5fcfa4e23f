"""Which of a chip's tables its facts come from, and these facts as lines of data/chips."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from twin.extras.operator_tables.fits import SPREAD, SUMMED, Fitted
from twin.model.formats import FORMATS

ENGINES = ("sglang", "vllm", "trtllm")  # the first is the engine whose kernels the costs describe
WORTH = 0.15  # mean error of held-back rows up to which a table gives a fact
SUMS = 0.2  # of all-reduces, whose kernels change with the size
# Share of what binds it: an attention kernel below it is not what is served, and one for packed
# weights reads them unpacked (SGLang's table of MXFP4 on Hopper: in BF16, a fifth of the memory).
FALLBACK = 0.3
BINDS = {"mla": "bandwidth", "gqa": "bandwidth", "prefill_mla": "compute", "prefill_gqa": "compute"}
PACKED = {known.kernels for known in FORMATS.values()} - {""}
SERVED = {
    "source": "sgl-project/sglang pull requests 11816 and 38374: promoted for DeepSeek's family",
    "mark": "a",
}  # of a faster kernel for experts than the one that SGLang compiles
SCALED = "trtllm"  # the engine whose maker's checkpoints in FP8 have one scale a tensor
TRITON = "triton"  # in the names of kernels for experts that engines compile themselves
ORDER = (
    "gemm", "gemm_gqa", "grouped", "fused", "fused_gqa", "contiguous", "mla", "gqa", "prefill_mla",
    "prefill_gqa", "sparse", "eager_mla", "exchange", "alltoall", "collective", "gather",
)  # fmt: skip
COLLECTIVES = {
    "collective": ("inside", "all-reduces of 1 KB to 256 MB in a graph"),
    "gather": ("gathers", "all-gathers and reduce-scatters of 1 KB to 256 MB"),
}
APART = ("exchange", "alltoall", *COLLECTIVES)  # whose facts are of a network
HOSTS = {"eager_mla": "mla", "contiguous": "moe"}  # launched kernel by kernel: what of a layer
NETWORKS = {"inside a node": "inside", "across nodes": "across"}
TILES = ("tile_small", "tile_large")
# Facts of one number: factor from SI, digits after the point (None: a whole number), unit.
FACTS = {
    "start": (1e6, 1, "us"), "compute": (100, 1, "%"), "bandwidth": (100, 1, "%"),
    "each": (1e6, 3, "us"), "row": (1, 1, "B"), "edge": (1, None, "pairs"), "power": (1, None, ""),
}  # fmt: skip
PARTS = {"mla": "attention"}  # names in data/chips, where they differ from those of tables


def choose_tables(found: Iterable[Fitted], engine: str = "") -> list[Fitted]:
    """The best table of each operator, number format and exchange. Preferred, in this order: the
    first engine (or `engine`), the kernel of experts that are spread over dies, the newest release,
    most rows. Tables of experts on one rank also stand for the operators `fused`, `fused_gqa`."""
    engine_fits = [fit for fit in found if fit.engine.partition(" ")[0] == engine or not engine]
    if engine != SCALED:
        engine_fits = [fit for fit in engine_fits if fit.operator != "gemm_gqa"]
    rank_fits = [replace(fit, operator="fused", part=fit.part.removesuffix(SUMMED))
                for fit in engine_fits if fit.part.endswith(SUMMED)]  # fmt: skip
    rank_keys = {(fit.engine, fit.format, fit.part) for fit in rank_fits}
    engine_fits = [fit for fit in engine_fits if not fit.part.endswith(SUMMED)]
    engine_fits += rank_fits + [
        replace(fit, operator="fused") for fit in engine_fits
        if _is_fused(fit) and (fit.engine, fit.format, fit.part) not in rank_keys
    ]  # fmt: skip
    engine_fits += [replace(fit, operator="fused_gqa") for fit in engine_fits if _is_compiled(fit)]
    best_by_key: dict[tuple[int, str, str], Fitted] = {}
    for fit in sorted(filter(_is_good_enough, engine_fits), key=_preference):
        network = fit.part if fit.operator in APART or fit.part == "host" else ""
        best_by_key.setdefault((ORDER.index(fit.operator), fit.format, network), fit)
    fused_names = {fit.name for fit in best_by_key.values() if fit.operator == "fused"}
    return [
        fit for _, fit in sorted(best_by_key.items())
        if fit.operator != "fused_gqa" or replace(fit, operator="fused").name not in fused_names
    ]  # fmt: skip


def _is_compiled(each: Fitted) -> bool:
    """Whether a table is of the kernel for experts that SGLang compiles itself (Triton). Models of
    DeepSeek's family have a faster one (pull request 38374), so it is for models without MLA."""
    return each.operator == "fused" and TRITON in each.part and each.engine.startswith(ENGINES[0])


def _is_fused(each: Fitted) -> bool:
    """Whether a table is of experts to which no all-to-all (DeepEP) dispatches tokens."""
    return each.operator == "grouped" and each.part != SPREAD


def _is_good_enough(each: Fitted) -> bool:
    """Whether a fit has small enough errors, and enough of the peak that binds it, for facts."""
    fact = "bandwidth" if each.format in PACKED else BINDS.get(each.operator)
    is_high_enough = fact is None or each.facts[fact] >= FALLBACK
    error_max = SUMS if each.operator in COLLECTIVES else WORTH
    return each.operator in ORDER and each.mean <= error_max and is_high_enough


def _preference(each: Fitted) -> tuple[object, ...]:
    """Sort key of fits: preferred engine first, kernel of spread experts, newest release, rows."""
    engine, _, release = each.engine.partition(" ")
    releases = tuple(-int(number) for number in re.findall(r"\d+", release))
    engine_rank = ENGINES.index(engine) if engine in ENGINES else len(ENGINES)
    return engine_rank, each.part != SPREAD, releases, -each.rows, round(each.mean, 3), each.part


def library_facts(found: Iterable[Fitted], source: str, name: str, link: float = 0.0) -> str:
    """TOML of the operators and exchange inside a node of a kernel library's latest release, as
    data/chips has them; source: where tables are; link: GB/s of a die inside a node."""
    found = list(found)
    kernels = [
        fit for fit in found
        if fit.operator not in APART and fit.part != "host" and not _is_fused(fit)
    ]  # fmt: skip
    tables = [_op_text(fit, source, f"kernels.{name}.latest") for fit in kernels]
    if exchange_lines := _exchange_lines(found, "inside a node", source, link, "alltoall"):
        tables.append(f"[kernels.{name}.latest.exchange.inside]\n{exchange_lines}")
    return "\n\n".join(tables)


def fact_lines(
    found: Iterable[Fitted], source: str, links: Mapping[str, float] | None = None
) -> str:
    """TOML of a chip's operators and collectives, as data/chips has them; source: where tables are;
    links: GB/s of a die, `inside` a node and `across` nodes."""
    found = list(found)
    compiled_formats = {fit.format for fit in found if fit.operator == "fused_gqa"}
    tables = [
        _op_text(fit, source, apart=fit.operator == "fused" and fit.format in compiled_formats)
        for fit in found if fit.operator not in APART and fit.part != "host"
    ]  # fmt: skip
    tables += [_host_text(fit, source) for fit in found if fit.part == "host"]
    texts = {name: _exchange_lines(found, network, source, (links or {}).get(name, 0.0))
            for network, name in NETWORKS.items()}  # fmt: skip
    exchanges = [f"[operators.exchange.{name}]\n{text}" for name, text in texts.items() if text]
    link = (links or {}).get("inside", 0.0)
    for operator in COLLECTIVES:
        if link and (operator_fits := [fit for fit in found if fit.operator == operator]):
            exchanges.append(_collective_text(operator_fits, source, link))
    return "\n\n".join((*tables, *exchanges))


def _host_text(each: Fitted, source: str) -> str:
    """TOML of the host's time (us) for a part of a layer that is launched kernel by kernel."""
    origin = {"source": f"{source}: {each.name}", "mark": "d"}
    lines = [_toml("host", round(1e6 * each.facts["host"]), "us", origin),
            _held_line("held_back", each, origin)]  # fmt: skip
    return "\n".join((f"[operators.eager.{HOSTS[each.operator]}]", *lines))


def _collective_text(sums: list[Fitted], source: str, link: float) -> str:
    """TOML of collectives inside a node by number of dies: start (us) and share of the link's rate,
    of small and of large messages; link: GB/s of a die."""
    name, sizes_text = COLLECTIVES[sums[0].operator]
    by_dies = sorted(sums, key=lambda each: int(each.part.split()[0]))
    engines = ", ".join(dict.fromkeys(each.engine for each in by_dies))
    entry = {"source": f"{source}: {sizes_text}, {engines}", "mark": "d"}
    rate_entry, error = entry | {"note": f"of {link:g} GB/s"}, max(each.mean for each in by_dies)
    fits = [each.facts for each in by_dies]
    starts_us = [round(1e6 * fit["start"], 1) for fit in fits]
    large_starts_us = [round(1e6 * (fit["start"] + fit["later"]), 1) for fit in fits]
    rates = [round(1e-7 * fit["rate"] / link, 1) for fit in fits]
    large_rates = [round(1e-7 * fit["rate"] * (1.0 + fit["gain"]) / link, 1) for fit in fits]
    lines = [
        _toml("dies", [int(each.part.split()[0]) for each in by_dies], "", entry),
        _toml("start", starts_us, "us", entry),
        _toml("rate", rates, "%", rate_entry),
        _toml("large_start", large_starts_us, "us", entry),
        _toml("large_rate", large_rates, "%", rate_entry),
        _toml("held_back", round(100 * error, 1), "%", entry | {"note": "the worst mean of these"}),
    ]  # fmt: skip
    return "\n".join((f"[operators.collective.{name}]", *lines))


def _exchange_lines(
    found: Iterable[Fitted], where: str, source: str, link: float, operator: str = "exchange"
) -> str:
    """TOML lines of a network (`where`): fixed time (us) of dispatch and of combine, and the share
    of a link's GB/s that they reach; operator: `exchange`, DeepEP's, or `alltoall`, a library's."""
    lines = []
    for fit in found:
        phase, _, place = fit.part.partition(" ")
        if fit.operator != operator or place != where or not link:
            continue
        origin = {"source": f"{source}: {fit.name}", "mark": "d"}
        gb_per_s = fit.facts["rate"] / 1e9
        rate_note = origin | {"note": f"{gb_per_s:.0f} of {link:g} GB/s"}
        lines += [
            _toml(f"{phase}_start", round(1e6 * fit.facts["start"], 1), "us", origin),
            _toml(f"{phase}_rate", round(100 * gb_per_s / link, 1), "%", rate_note),
            _held_line(f"{phase}_held_back", fit, origin),
        ]
    return "\n".join(lines)


def _op_text(each: Fitted, source: str, above: str = "operators", apart: bool = False) -> str:
    """TOML of one operator's facts, with source and error of the fit; above: the table that it is
    in; apart: models without latent attention have another kernel for experts."""
    operator = PARTS.get(each.operator, each.operator)
    is_by_cache = operator in ("attention", "gqa", "prefill_mla", "prefill_gqa", "sparse")
    name = "8bit" if is_by_cache and each.format != "bf16" else each.format
    origin = {"source": f"{source}: {each.name}", "mark": "d"}
    lines = [
        _toml(fact, round(factor * each.facts[fact], digits), unit, origin)
        for fact, (factor, digits, unit) in FACTS.items()
        # The start of some is the host's (`eager`).
        if fact in each.facts and not (fact == "start" and operator in ("contiguous", "sparse"))
    ]
    if "edge" in each.facts or "power" in each.facts:
        lines.append(_toml("peak", each.part.removeprefix("computed in "), "", origin))
        if operator == "sparse":  # heads that are computed together
            lines.append(_toml("tile_small", int(each.facts["tile_small"]), "heads", origin))
    else:
        rows = [int(each.facts[k]) for k in TILES]
        in_tiles = rows[1] > 1  # else it computes no more than its rows
        if in_tiles or above != "operators":  # a library says what replaces other tiles
            lines += [
                _toml(k, size * in_tiles, "rows", origin)
                for k, size in zip(TILES, rows, strict=True)
            ]
    if apart:
        lines.append(_toml("serves", "mla", "", SERVED))
    elif operator == "fused" and above != "operators":
        lines.append(_toml("serves", "all", "", origin))
    lines.append(_held_line("held_back", each, origin))
    return "\n".join((f"[{above}.{operator}.{name}]", *lines))


def _held_line(name: str, each: Fitted, named: dict[str, str]) -> str:
    """TOML line of the mean error (%) on rows left out of the fit; named: source and mark."""
    note = f"of {each.held:,} of {each.rows:,} rows; {100 * each.worst:.0f} % at worst"
    return _toml(name, round(100 * each.mean, 1), "%", named | {"note": note})


def _toml(name: str, value: object, unit: str, named: dict[str, str]) -> str:
    """TOML line of a fact: value, unit, and the entries of `named`, as source and mark."""
    fact = {"value": value, "unit": unit, **named}
    inline_table = ", ".join(f"{key} = {json.dumps(entry)}" for key, entry in fact.items())
    return f"{name} = {{ {inline_table} }}"
