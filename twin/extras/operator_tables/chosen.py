"""Which of a chip's tables its facts come from, and these facts as lines of data/chips."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from twin.commands.terminal import AsJson, end_with_json, err, print_rows
from twin.extras.operator_tables.fits import SPREAD, SUMMED, Fitted, Peaks, fit_table
from twin.extras.operator_tables.tables import NoTable, read_tables
from twin.hardware.chip import load_chip
from twin.lab.library import load_facts
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


def choose_tables(fits: Iterable[Fitted], engine: str = "") -> list[Fitted]:
    """The best table of each operator, number format and exchange. Preferred, in this order: the
    first engine (or `engine`), the kernel of experts that are spread over dies, the newest release,
    most rows. Tables of experts on one rank also stand for the operators `fused`, `fused_gqa`."""
    engine_fits = [fit for fit in fits if fit.engine.partition(" ")[0] == engine or not engine]
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
    for fit in sorted(filter(_is_good_enough, engine_fits), key=_preference_key):
        network = fit.part if fit.operator in APART or fit.part == "host" else ""
        best_by_key.setdefault((ORDER.index(fit.operator), fit.format, network), fit)
    fused_names = {fit.name for fit in best_by_key.values() if fit.operator == "fused"}
    return [
        fit for _, fit in sorted(best_by_key.items())
        if fit.operator != "fused_gqa" or replace(fit, operator="fused").name not in fused_names
    ]  # fmt: skip


def _is_compiled(fit: Fitted) -> bool:
    """Whether a table is of the kernel for experts that SGLang compiles itself (Triton). Models of
    DeepSeek's family have a faster one (pull request 38374), so it is for models without MLA."""
    return fit.operator == "fused" and TRITON in fit.part and fit.engine.startswith(ENGINES[0])


def _is_fused(fit: Fitted) -> bool:
    """Whether a table is of experts whose tokens no all-to-all (DeepEP) dispatches."""
    return fit.operator == "grouped" and fit.part != SPREAD


def _is_good_enough(fit: Fitted) -> bool:
    """Whether a fit may give facts: small errors, and enough of the peak that limits it."""
    peak_name = "bandwidth" if fit.format in PACKED else BINDS.get(fit.operator)
    is_high_enough = peak_name is None or fit.facts[peak_name] >= FALLBACK
    error_max = SUMS if fit.operator in COLLECTIVES else WORTH
    return fit.operator in ORDER and fit.mean <= error_max and is_high_enough


def _preference_key(fit: Fitted) -> tuple[object, ...]:
    """Sort key of fits: preferred engine first, kernel of spread experts, newest release, rows."""
    engine, _, release = fit.engine.partition(" ")
    newest_first = tuple(-int(number) for number in re.findall(r"\d+", release))
    engine_rank = ENGINES.index(engine) if engine in ENGINES else len(ENGINES)
    return engine_rank, fit.part != SPREAD, newest_first, -fit.rows, round(fit.mean, 3), fit.part


def library_toml(fits: Iterable[Fitted], source: str, name: str, link: float = 0.0) -> str:
    """TOML, as in data/chips, of the latest release of the kernel library `name`: operators, and
    exchange inside a node. source: where the tables are; link: GB/s of a die inside a node."""
    fits = list(fits)
    kernel_fits = [
        fit for fit in fits
        if fit.operator not in APART and fit.part != "host" and not _is_fused(fit)
    ]  # fmt: skip
    toml_tables = [_op_toml(fit, source, f"kernels.{name}.latest") for fit in kernel_fits]
    if exchange_lines := _exchange_lines(fits, "inside a node", source, link, "alltoall"):
        toml_tables.append(f"[kernels.{name}.latest.exchange.inside]\n{exchange_lines}")
    return "\n\n".join(toml_tables)


def chip_toml(fits: Iterable[Fitted], source: str, links: Mapping[str, float] | None = None) -> str:
    """TOML of a chip's operators and collectives, as in data/chips; source: where the tables are;
    links: GB/s of a die, `inside` a node and `across` nodes (none: no collectives)."""
    fits = list(fits)
    compiled_formats = {fit.format for fit in fits if fit.operator == "fused_gqa"}
    toml_tables = [
        _op_toml(fit, source, mla_only=fit.operator == "fused" and fit.format in compiled_formats)
        for fit in fits if fit.operator not in APART and fit.part != "host"
    ]  # fmt: skip
    toml_tables += [_host_toml(fit, source) for fit in fits if fit.part == "host"]
    lines_of = {key: _exchange_lines(fits, network, source, (links or {}).get(key, 0.0))
            for network, key in NETWORKS.items()}  # fmt: skip
    exchanges = [f"[operators.exchange.{key}]\n{lines}" for key, lines in lines_of.items() if lines]
    inside_gb_per_s = (links or {}).get("inside", 0.0)
    for operator in COLLECTIVES:
        if inside_gb_per_s and (operator_fits := [fit for fit in fits if fit.operator == operator]):
            exchanges.append(_collective_toml(operator_fits, source, inside_gb_per_s))
    return "\n\n".join((*toml_tables, *exchanges))


def _host_toml(fit: Fitted, source: str) -> str:
    """TOML of the host's time (us) for a part of a layer that is launched kernel by kernel (HOSTS);
    source: where the tables are."""
    origin = {"source": f"{source}: {fit.name}", "mark": "d"}
    lines = [_fact_line("host", round(1e6 * fit.facts["host"]), "us", origin),
            _held_back_line("held_back", fit, origin)]  # fmt: skip
    return "\n".join((f"[operators.eager.{HOSTS[fit.operator]}]", *lines))


def _collective_toml(tables: list[Fitted], source: str, link: float) -> str:
    """TOML of collectives inside a node, with an entry for each number of dies: start (us) and % of
    the link's rate, for small and large messages; tables: a fit for each number of dies; source:
    where the tables are; link: GB/s of a die."""
    collective, sizes_text = COLLECTIVES[tables[0].operator]
    tables = sorted(tables, key=lambda fit: int(fit.part.split()[0]))
    engines = ", ".join(dict.fromkeys(fit.engine for fit in tables))
    origin = {"source": f"{source}: {sizes_text}, {engines}", "mark": "d"}
    rate_origin = origin | {"note": f"of {link:g} GB/s"}
    facts_of = [fit.facts for fit in tables]
    starts_us = [round(1e6 * fit["start"], 1) for fit in facts_of]
    large_starts_us = [round(1e6 * (fit["start"] + fit["later"]), 1) for fit in facts_of]
    rate_percents = [round(1e-7 * fit["rate"] / link, 1) for fit in facts_of]
    large_percents = [round(1e-7 * fit["rate"] * (1.0 + fit["gain"]) / link, 1) for fit in facts_of]
    lines = [
        _fact_line("dies", [int(fit.part.split()[0]) for fit in tables], "", origin),
        _fact_line("start", starts_us, "us", origin),
        _fact_line("rate", rate_percents, "%", rate_origin),
        _fact_line("large_start", large_starts_us, "us", origin),
        _fact_line("large_rate", large_percents, "%", rate_origin),
        _fact_line("held_back", round(100 * max(fit.mean for fit in tables), 1), "%",
              origin | {"note": "the worst mean of these"}),
    ]  # fmt: skip
    return "\n".join((f"[operators.collective.{collective}]", *lines))


def _exchange_lines(
    fits: Iterable[Fitted], where: str, source: str, link: float, operator: str = "exchange"
) -> str:
    """TOML lines of dispatch and combine in the network `where`, a key of NETWORKS: start (us) and
    % of `link` (GB/s) that they reach; operator: `exchange` (DeepEP) or `alltoall` (a library)."""
    lines = []
    for fit in fits:
        phase, _, place = fit.part.partition(" ")
        if fit.operator != operator or place != where or not link:
            continue
        origin = {"source": f"{source}: {fit.name}", "mark": "d"}
        gb_per_s = fit.facts["rate"] / 1e9
        rate_origin = origin | {"note": f"{gb_per_s:.0f} of {link:g} GB/s"}
        lines += [_fact_line(f"{phase}_start", round(1e6 * fit.facts["start"], 1), "us", origin),
                  _fact_line(f"{phase}_rate", round(100 * gb_per_s / link, 1), "%", rate_origin),
                  _held_back_line(f"{phase}_held_back", fit, origin)]  # fmt: skip
    return "\n".join(lines)


def _op_toml(fit: Fitted, source: str, table: str = "operators", mla_only: bool = False) -> str:
    """TOML of one operator's facts, with source and error of the fit; table: name of the TOML table
    around it; mla_only: this kernel for experts serves only models with latent attention."""
    operator_name = PARTS.get(fit.operator, fit.operator)
    is_named_by_kv_format = operator_name in (
        "attention",
        "gqa",
        "prefill_mla",
        "prefill_gqa",
        "sparse",
    )
    format_name = "8bit" if is_named_by_kv_format and fit.format != "bf16" else fit.format
    origin = {"source": f"{source}: {fit.name}", "mark": "d"}
    lines = [
        _fact_line(fact, round(factor * fit.facts[fact], digits), unit, origin)
        for fact, (factor, digits, unit) in FACTS.items()
        # The start of some is the host's (`eager`).
        if fact in fit.facts and not (fact == "start" and operator_name in ("contiguous", "sparse"))
    ]
    if "edge" in fit.facts or "power" in fit.facts:
        lines.append(_fact_line("peak", fit.part.removeprefix("computed in "), "", origin))
        if operator_name == "sparse":  # heads that are computed together
            lines.append(_fact_line("tile_small", int(fit.facts["tile_small"]), "heads", origin))
    else:
        tile_rows = [int(fit.facts[tile_name]) for tile_name in TILES]
        has_tiles = tile_rows[1] > 1  # else it computes no more than its rows
        if has_tiles or table != "operators":  # a library says what replaces other tiles
            lines += [_fact_line(tile_name, tile * has_tiles, "rows", origin)
                      for tile_name, tile in zip(TILES, tile_rows, strict=True)]  # fmt: skip
    if mla_only:
        lines.append(_fact_line("serves", "mla", "", SERVED))
    elif operator_name == "fused" and table != "operators":
        lines.append(_fact_line("serves", "all", "", origin))
    lines.append(_held_back_line("held_back", fit, origin))
    return "\n".join((f"[{table}.{operator_name}.{format_name}]", *lines))


def _held_back_line(name: str, fit: Fitted, origin: dict[str, str]) -> str:
    """TOML line of the mean error (%) on rows left out of the fit; origin: source and mark."""
    note = f"of {fit.held:,} of {fit.rows:,} rows; {100 * fit.worst:.0f} % at worst"
    return _fact_line(name, round(100 * fit.mean, 1), "%", origin | {"note": note})


def _fact_line(name: str, value: object, unit: str, origin: dict[str, str]) -> str:
    """TOML line of a fact: value, unit, and the entries of `origin`, as source and mark."""
    entries = {"value": value, "unit": unit, **origin}
    inline_table = ", ".join(f"{field} = {json.dumps(entry)}" for field, entry in entries.items())
    return f"{name} = {{ {inline_table} }}"


def operator_facts(
    path: Annotated[Path, typer.Argument(help="A table, or a folder with the tables of a chip.")],
    chip: Annotated[str, typer.Option(help="The chip in data/chips that was measured.")],
    held: Annotated[float, typer.Option(
        min=0.05, max=0.5, help="Share of a table's rows that is held back.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Draws the rows that are held back.")] = 26,
    node: Annotated[int, typer.Option(min=1, help="Dies of a node.")] = 8,
    source: Annotated[str, typer.Option(
        help="Print facts for data/chips, with this as where tables stand.")] = "",
    engine: Annotated[str, typer.Option(
        help="With --source: facts of this engine's own kernel library.")] = "",
    link: Annotated[float, typer.Option(help="GB/s of a die inside a node, one way.")] = 450.0,
    nic: Annotated[float, typer.Option(help="GB/s of a die's NIC, one way.")] = 50.0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print a chip's operator efficiencies by a measured table, with errors of rows left out."""
    facts = load_facts()
    measured_chip, formats = load_chip(facts, chip), facts.names(f"chips.{chip}.flops")
    peaks = Peaks(
        {fmt: measured_chip.peak(fmt) for fmt in formats}, measured_chip.hbm_bytes_per_s, node
    )
    fits: list[Fitted] = []
    try:
        with err.status("fitting"):
            for table in read_tables(path):
                fits += fit_table(table, peaks, held, seed)
    except NoTable as refusal:
        raise typer.BadParameter(str(refusal)) from refusal
    end_with_json([asdict(fit_row) | {"table": fit_row.name} for fit_row in fits], as_json)
    if source and engine:
        typer.echo(library_toml(choose_tables(fits, engine), source, engine, link))
        return
    if source:
        typer.echo(chip_toml(choose_tables(fits), source, {"inside": link, "across": nic}))
        return
    columns = ("table", "start", "peak or rate", "memory", "tile or power", "rows", "held", "worst")
    print_rows("Facts", columns, [_printed_row(fit_row) for fit_row in fits])


def _printed_row(fit: Fitted) -> tuple[str, ...]:
    """Texts of one fit for the printed table, by column."""
    facts = fit.facts
    rate_text = f"{facts['rate'] / 1e9:.0f} GB/s" if "rate" in facts else f"{facts['compute']:.3f}"
    tile_texts = [
        f"{facts[key]:.0f}" for key in ("tile_small", "tile_large", "power") if key in facts
    ]
    memory_text = f"{facts['bandwidth']:.3f}" if "bandwidth" in facts else ""
    return (
        fit.name.replace(", ", "\n", 1), f"{1e6 * facts.get('start', 0.0):.1f} us", rate_text,
        memory_text, "/".join(tile_texts), str(fit.rows),
        f"{100 * fit.mean:.1f} %", f"{100 * fit.worst:.0f} %",
    )  # fmt: skip
