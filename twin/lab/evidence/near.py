"""What bands say of a scenario's headline figures, in words; today's errors: `evidence --write`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.lab.evidence.bands import (
    DECODE,
    HALF,
    MOST,
    PLAIN,
    PREFILL,
    PRIOR,
    STACK,
    Band,
    Error,
    error_record,
    ratio_error_and_pairs,
    tree_leaf,
)
from twin.lab.evidence.judge import stored_errors
from twin.lab.evidence.rows import SUPERNODE, load_published, rows_digest
from twin.metrics.measures import numbered
from twin.metrics.registry import as_text
from twin.scenario import Scenario, chip_of, pools
from twin.scenario.words import choice_label


@dataclass(frozen=True, slots=True)
class Figure:
    """A headline figure with a band, and the quantity of its rows."""

    name: str
    quantity: str
    metric: str  # of a run's summary
    time: bool  # whether less is faster


FIGURES = (
    Figure("TPOT", DECODE, "tpot_s_mean", True),
    Figure("decode throughput", DECODE, "decode_tokens_per_s_per_npu", False),
    Figure("prefill throughput", PREFILL, "prefill_tokens_per_s_per_npu", False),
    Figure("TTFT", "ttft", "ttft_s_p50", True),
)


@dataclass(frozen=True, slots=True)
class FigureBand:
    """The band of one figure of a scenario."""

    figure: Figure
    band: Band
    where: str  # the stack and the machine
    seen: int  # rows in sight of the same stack: they say where the twin stands, not how far off
    extrapolated: tuple[str, ...]  # why the rows do not reach so far; empty: they do
    stale: bool  # whether the errors were stored with other facts or rows

    def ends(self, share: float) -> tuple[float, float]:
        """(low, high) end of the band that holds a share of measurements, divided by the figure."""
        low_log, high_log = (
            log_end if self.figure.time else -log_end for log_end in self.band.ends(share)
        )
        return math.exp(min(low_log, high_log)), math.exp(max(low_log, high_log))

    def percents(self, share: float) -> str:
        """The band that holds a share of measurements, around the twin's figure: '−22 to +26 %'."""
        percent_texts = (
            f"{100 * (end_ratio - 1):+.0f}".replace("-", "−") for end_ratio in self.ends(share)
        )
        return f"{' to '.join(percent_texts)} %"

    def range_text(self, value: float) -> str:
        """The band that holds MOST measurements around a figure's value (SI): '39.2 to 62.3 ms'."""
        low_text, high_text = (
            as_text(self.figure.metric, value * end_ratio) for end_ratio in self.ends(MOST)
        )
        low_number, _, unit = low_text.partition(" ")
        return f"{low_number if high_text.endswith(f' {unit}') else low_text} to {high_text}"

    @property
    def sentence(self) -> str:
        """Sentence: the bands of 80 and 50 % of measurements, their rows, what is extrapolated."""
        title = self.figure.name[:1].upper() + self.figure.name[1:]
        return (
            f"{title}: four of five measurements are expected {self.percents(MOST)} from it, half "
            f"of them {self.percents(HALF)} ({self.basis})."
            + "".join(f" Extrapolated: {reason}." for reason in self.extrapolated)
        )

    @property
    def basis(self) -> str:
        """Text on the rows that the band is made from: how many, and of which systems."""
        facts_text = ", with earlier facts" if self.stale else ""
        if not self.band.own:
            seen_text = f"; its {numbered(self.seen, 'row')} were in sight of its making"
            other_text = "as far as other systems were off at first"
            return f"{other_text}{seen_text if self.seen else ''}{facts_text}"
        weight_text = "" if self.band.own >= PRIOR else f", other systems weigh as {PRIOR}"
        return f"{numbered(self.band.own, 'unseen row')} of {self.where}{weight_text}{facts_text}"


@lru_cache(maxsize=4)
def _is_stale(facts: Facts) -> bool:
    """Whether the stored errors were computed with other facts or published rows than these."""
    errors = stored_errors()
    return (errors["facts"], errors["rows"]) != (facts.digest, rows_digest(load_published()))


def figures_of(scenario: Scenario, run: bool = False) -> list[Figure]:
    """Headline figures of a deployment; run: of a run, whose throughputs are left out if arrivals
    determine them."""
    roles = {role for role, *_ in pools(scenario)}
    is_present = {
        DECODE: bool(roles & {"decode", "colocated"}),
        PREFILL: bool(roles & {"prefill", "colocated"}),
        "ttft": len(roles) > 1 or "colocated" in roles,
    }
    shows_throughputs = not run or scenario.workload.arrivals == "closed_loop"
    return [
        figure
        for figure in FIGURES
        if is_present[figure.quantity] and (shows_throughputs or figure.time)
    ]


def figure_bands(scenario: Scenario, facts: Facts, run: bool = False) -> list[FigureBand]:
    """Band of each headline figure of a scenario, with reasons why the rows may not reach so far.
    run: of a simulated run, without throughputs if arrivals determine them."""
    bands, (errors, all_bands) = [], error_record()
    for figure in figures_of(scenario, run):
        levels = _figure_levels(figure, scenario)
        stack_errors = [error for error in errors if error.levels[:STACK] == levels[:STACK]]
        chip_title = load_chip(facts, str(levels[1])).title
        bands.append(FigureBand(
            figure, all_bands.band(levels), f"{_stack_label(str(levels[2]))}, {chip_title}",
            sum(error.first is None for error in stack_errors),
            tuple(_gap_texts(figure, scenario, chip_title, stack_errors)), _is_stale(facts),
        ))  # fmt: skip
    return bands


def _figure_levels(figure: Figure, scenario: Scenario) -> tuple[Any, ...]:
    """Levels that group errors (see `tree_leaf`) for a figure of a scenario."""
    return tree_leaf(figure.quantity, scenario, stack_of_scenario(scenario))


def stack_of_scenario(scenario: Scenario) -> str:
    """A scenario's stack: its own, else the supernode's on the supernode's chip, otherwise ''."""
    stack = scenario.deployment.stack
    if stack != PLAIN:
        return stack
    chip = chip_of(scenario, "decode")
    is_supernode = any(error.levels[1:STACK] == (chip, SUPERNODE) for error in error_record()[0])
    return SUPERNODE if is_supernode else ""


def _stack_label(stack: str) -> str:
    """Name of a stack in words; '' is no stack by name."""
    if stack in ("", SUPERNODE):
        return f"the stack of {SUPERNODE}" if stack else "no stack by name"
    return choice_label("deployment.stack", stack)


def _gap_texts(figure: Figure, scenario: Scenario, chip: str, errors: Sequence[Error]) -> list[str]:
    """Clauses on what no published row has of a figure's regime (stack, serving mode, batch). chip:
    its title; errors: of rows of the same quantity, stack and chip."""
    if not any(error.levels[0] == figure.quantity for error in error_record()[0]):
        return [f"no row of {figure.name} was published, so this is the band of other figures"]
    if not errors:
        stack = stack_of_scenario(scenario)
        if not stack:
            return [f"the scenario names no stack, and rows on {chip} are of engines by name"]
        return [f"no row of {figure.name} is of {_stack_label(stack)} on {chip}"]
    reasons = []
    mode = _figure_levels(figure, scenario)[STACK]
    if all(error.levels[STACK] != mode for error in errors):
        mode_clause = "are of colocated instances" if mode == "apart" else "measure the pools apart"
        reasons.append(f"all rows of this stack {mode_clause}")
    if figure.quantity == DECODE:
        low_batch, high_batch = (
            min(error.batch for error in errors),
            max(error.batch for error in errors),
        )
        batch = scenario.deployment.decode.batch_per_npu
        if not low_batch <= batch <= high_batch:
            batches = f"{low_batch} to {high_batch}" if low_batch < high_batch else f"{low_batch}"
            reasons.append(
                f"a batch of {batch} requests per NPU; rows of this stack have {batches}"
            )
    return reasons


def bands_by_run(
    scenarios: Mapping[str, Scenario], facts: Facts
) -> list[tuple[tuple[str, ...], list[FigureBand]]]:
    """(names of runs, their bands) for each group of runs with equal bands."""
    run_groups: dict[tuple[str, ...], tuple[list[str], list[FigureBand]]] = {}
    for run_name, scenario in scenarios.items():
        bands = figure_bands(scenario, facts, run=True)
        run_names, _ = run_groups.setdefault(tuple(band.sentence for band in bands), ([], bands))
        run_names.append(run_name)
    return [(tuple(run_names), bands) for run_names, bands in run_groups.values()]


def bands_text(bands: Sequence[FigureBand]) -> str:
    """Bands that hold MOST measurements, in words: 'TPOT −21 to +28 %, TTFT −40 to +85 %
    (extrapolated)'."""
    return ", ".join(
        f"{band.figure.name} {band.percents(MOST)}{' (extrapolated)' if band.extrapolated else ''}"
        for band in bands
    )


@dataclass(frozen=True, slots=True)
class KnownRatio:
    """Difference of a figure of two runs, and the known error of such a ratio."""

    figure: Figure
    within: float  # as a fraction: a ratio of 1.12 is known to 12 %
    equal: bool

    @property
    def band(self) -> str:
        """Known error of the ratio: '±12 %', or 'a factor of 2.0' where it exceeds a half."""
        is_wide = self.within > 0.5
        return f"a factor of {1 + self.within:.1f}" if is_wide else f"±{100 * self.within:.0f} %"

    @property
    def text(self) -> str:
        """The known error in words: 'equal within what is known (±12 %)', or 'known to ±12 %'."""
        band = self.band
        return f"equal within what is known ({band})" if self.equal else f"known to {band}"


def known_ratios(
    first_run: tuple[Scenario, Mapping[str, Any]], other: tuple[Scenario, Mapping[str, Any]]
) -> list[KnownRatio]:
    """For each headline figure that differs between two runs, the known error of such a ratio, and
    whether the figures are equal within it. first_run, other: (scenario, summary)."""
    ratios = []
    for figure in figures_of(first_run[0], run=True):
        first_value, other_value = first_run[1].get(figure.metric), other[1].get(figure.metric)
        has_band = figure in figures_of(other[0], run=True) and figure.quantity in (DECODE, PREFILL)
        if has_band and first_value and other_value and first_value != other_value:
            speed_ratio = other_value / first_value if figure.time else first_value / other_value
            ratios.append(_known_ratio(figure, first_run[0], other[0], speed_ratio))
    return ratios


def _known_ratio(figure: Figure, one: Scenario, other: Scenario, speed_ratio: float) -> KnownRatio:
    """Comparison of a figure of two scenarios; speed_ratio: of `one` divided by `other`. On the
    same machine, stack, mode and model errors mostly cancel; others count as independent."""
    errors, error_bands = error_record()
    levels, other_levels = _figure_levels(figure, one), _figure_levels(figure, other)
    model = one.deployment.model
    if levels[1 : STACK + 1] == other_levels[1 : STACK + 1] and model == other.deployment.model:
        log_centre, half_width = 0.0, ratio_error_and_pairs(errors, levels, model)[0]
    else:
        band, other_band = error_bands.band(levels), error_bands.band(other_levels)
        log_centre = band.centre - other_band.centre
        half_width = math.hypot(band.half_width(), other_band.half_width())
    is_equal = abs(math.log(speed_ratio) - log_centre) <= half_width
    return KnownRatio(figure, math.expm1(half_width), is_equal)


def known_throughput_ratio(one: Scenario, other: Scenario, ratio: float) -> KnownRatio:
    """Known error of a ratio of throughputs of two deployments; ratio: `one` divided by `other`."""
    figure = next(candidate for candidate in figures_of(one) if not candidate.time)
    return _known_ratio(figure, one, other, ratio)
