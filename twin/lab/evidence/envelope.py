"""Ranges that published rows cover, by aspect and chip; a scenario inside all may still be new."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from twin.facts import FactError, Facts
from twin.hardware.chip import load_chip
from twin.lab.evidence.rows import Row, load_published, scenario_of
from twin.model.shape import load_shape
from twin.scenario import Scenario, chip_of, field_info, field_unit, fields
from twin.scenario import value_of as scenario_value
from twin.scenario.groups import pools, pools_by_role, sharing_pool
from twin.scenario.words import choice_label
from twin.workload.generate import mean_lengths

Value = float | str | None  # None: the aspect says nothing about this configuration
POOL_OF = {"decode": "decode", "stream": "decode", "exchange": "exchange", "prefill": "prefill"}


@dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration of a published row: a scenario, and the measured pool."""

    row: str
    pool: str  # prefill, decode, exchange (dispatch or combine alone), or "" for the model alone
    scenario: Scenario
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Aspect:
    """One aspect in which a scenario can lie outside: numbers have a range, names a set."""

    name: str
    unit: str = ""
    pool: str = ""  # prefill, decode, or "" for every row
    path: str = ""  # of the field whose value it is, or whose options the names are
    read: Callable[[Configuration, Facts], Value] | None = None  # None: the field's value

    def value_of(self, config: Configuration, facts: Facts) -> Value:
        """Value of a scenario (`config`) in this aspect: a number or name; None if it has none."""
        return _field_value(self.path, config) if self.read is None else self.read(config, facts)

    @property
    def title(self) -> str:
        """The aspect's name with a capital first letter."""
        return self.name[0].upper() + self.name[1:]

    def value_text(self, value: float | str, facts: Facts) -> str:
        """A value as text without its unit; an option by the label that forms show."""
        if not isinstance(value, str):
            return f"{value:,.6g}"
        field = field_info(self.path)
        title_key = f"{field.files}.{value}.title" if field else ""
        return str(facts[title_key].value) if title_key in facts else choice_label(self.path, value)


@dataclass(frozen=True, slots=True)
class AspectRange:
    """Range of the published rows in one aspect."""

    aspect: Aspect
    values: tuple[float | str, ...]  # distinct, sorted
    rows: int

    def text(self, facts: Facts) -> str:
        """The range as text: '8 to 128 requests/NPU', '4,096 tokens only', or the names."""
        value_texts = [self.aspect.value_text(value, facts) for value in self.values]
        if all(isinstance(value, str) for value in self.values):
            return ", ".join(value_texts)
        range_text = (
            f"{value_texts[0]} to {value_texts[-1]}" if len(value_texts) > 1 else value_texts[0]
        )
        only_suffix = "" if len(value_texts) > 1 else " only"
        return f"{range_text} {self.aspect.unit}".rstrip() + only_suffix

    def holds(self, value: float | str) -> bool:
        """Whether a number is within the range of published rows, or a name among their names."""
        if isinstance(value, str):
            return value in self.values
        numbers = [number for number in self.values if not isinstance(number, str)]
        return bool(numbers) and numbers[0] <= value <= numbers[-1]


def _pool_chip(config: Configuration, _facts: Facts) -> Value:
    """Name of the chip of a configuration's measured pool."""
    return chip_of(config.scenario, "prefill" if config.pool == "prefill" else "decode")


def _ep_dies(role: str, config: Configuration, facts: Facts) -> Value:
    """EP degree in dies of a configuration's pool; role: prefill or decode."""
    if config.pool == "exchange":
        return float(config.args["ep"])
    dies_per_npu = load_chip(facts, chip_of(config.scenario, role)).dies_per_npu
    deployment = config.scenario.deployment
    section = "colocated" if deployment.mode == "colocated" else role
    return float(getattr(deployment, section).npus_per_instance * dies_per_npu)


def _mean_context(sparse: bool, config: Configuration, facts: Facts) -> Value:
    """Mean decode context in tokens of a model with sparse attention (`sparse`) or without; None
    for the other kind, a recorded trace or an exchange alone."""
    workload = config.scenario.workload
    is_sparse = load_shape(facts, config.scenario.deployment.model).index_top_k > 0
    if workload.arrivals == "trace" or config.pool == "exchange" or is_sparse != sparse:
        return None  # long contexts of sparse attention say nothing of those of all tokens
    prompt_tokens, answer_tokens, *_ = mean_lengths(workload, facts)
    return prompt_tokens + 0.5 * answer_tokens


def _mean_prompt(config: Configuration, facts: Facts) -> Value:
    """Mean prompt length in tokens; None for a recorded trace."""
    workload = config.scenario.workload
    return None if workload.arrivals == "trace" else mean_lengths(workload, facts).input_tokens


def _draft_field(name: str, config: Configuration, _facts: Facts) -> Value:
    """Value of the field `name` of the decode section; None if no draft tokens are used."""
    decode = config.scenario.deployment.decode
    return getattr(decode, name) if decode.mtp_draft_tokens else None


def _expert_skew(config: Configuration, facts: Facts) -> Value:
    """Skew of expert popularity, 0 if popularity is not skewed; None if placement is perfect."""
    experts = config.scenario.experts
    if experts.placement == "perfect":
        return None
    return experts.skew if experts.popularity == "skewed" else 0.0


def _reused_share(config: Configuration, facts: Facts) -> Value:
    """Share of prompt tokens that the memory pool has; None without a pool, or if a trace or
    sessions determine the share."""
    workload = config.scenario.workload
    share_varies = workload.arrivals == "trace" or workload.prefix == "sessions"
    if share_varies or not config.scenario.memory_pool.enabled:
        return None
    reused_share = workload.shared_fraction if workload.prefix == "shared" else 0.0
    return float(config.args.get("hit_share", reused_share))


def _field_value(path: str, config: Configuration) -> Value:
    """Value of a field by path, switches as 'on', 'off'; None for prefill fields if colocated."""
    if config.scenario.deployment.mode == "colocated" and path.startswith("deployment.prefill"):
        return None
    field_value = scenario_value(config.scenario, path)
    if isinstance(field_value, bool):
        return "on" if field_value else "off"
    return field_value if isinstance(field_value, str) else float(field_value)


ASPECTS = (
    Aspect("chip", path="supernode.chip", read=_pool_chip),
    Aspect("model", path="deployment.model"),
    Aspect("weight precision", path="deployment.precision.weights"),
    Aspect("KV precision", path="deployment.precision.kv"),
    Aspect("scale-up network reaches", path="supernode.scale_up"),
    Aspect("fused dispatch and combine", path="deployment.communication.fused"),
    Aspect("decode batch", "requests/NPU", "decode", "deployment.decode.batch_per_npu"),
    Aspect("mean decode context", "tokens", "decode", read=partial(_mean_context, False)),
    Aspect("mean decode context of sparse attention", "tokens", "decode",
           read=partial(_mean_context, True)),
    Aspect("drafter", "", "decode", "deployment.decode.drafter", partial(_draft_field, "drafter")),
    Aspect("decode EP degree", "dies", "decode", read=partial(_ep_dies, "decode")),
    Aspect("MTP draft", "tokens", "decode", "deployment.decode.mtp_draft_tokens"),
    Aspect("MTP acceptance", "", "decode", read=partial(_draft_field, "mtp_acceptance")),
    Aspect("expert skew in decode", "", "decode", read=_expert_skew),
    Aspect("prompt length", "tokens", "prefill", read=_mean_prompt),
    Aspect("prefill EP degree", "dies", "prefill", read=partial(_ep_dies, "prefill")),
    Aspect("prefill batch", "tokens/NPU", "prefill", "deployment.prefill.tokens_per_npu"),
    Aspect("prefill attention", "", "prefill", "deployment.prefill.attention"),
    Aspect("expert skew in prefill", "", "prefill", read=_expert_skew),
    Aspect("reused share of a prompt", "", "prefill", read=_reused_share),
    *(Aspect(info.label, field_unit(path), path=path) for path, info in fields().items()
      if path.startswith("deployment.optimisations.")),
)  # fmt: skip


def configurations(rows: Sequence[Row]) -> Iterator[Configuration]:
    """Yield the configuration of each published row, and the second one of a row that is a
    ratio."""
    for row in rows:
        pool = POOL_OF.get(row.measure.split(".")[0], "")
        yield Configuration(row.id, pool, scenario_of(row.scenario), row.args)
        if row.against is not None:
            against_args = {"hit_share": row.args.get("against_hit_share", 0.0)}
            yield Configuration(row.id, pool, scenario_of(row.against), against_args)


@lru_cache(maxsize=1)
def _published_configurations() -> tuple[Configuration, ...]:
    """Scenario and measured pool of every published row, read once."""
    return tuple(configurations(load_published()))


def aspect_ranges(
    facts: Facts, configurations: Sequence[Configuration] | None = None, chip: str = ""
) -> list[AspectRange]:
    """Range of each aspect over the configurations of a chip ('': all), or over all if the chip has
    none; configurations None: those of the published rows."""
    if configurations is None:
        return list(_published_ranges(facts, chip))
    if chip:
        configurations = [
            config for config in configurations if _pool_chip(config, facts) == chip
        ] or configurations
    ranges = []
    for aspect in ASPECTS:
        row_values = [
            (config.row, aspect.value_of(config, facts))
            for config in configurations
            if _applies(aspect, config)
        ]
        known_values = [(row, value) for row, value in row_values if value is not None]
        distinct_values = sorted(
            {value for _, value in known_values}, key=lambda v: (isinstance(v, str), v)
        )
        if distinct_values:
            ranges.append(
                AspectRange(aspect, tuple(distinct_values), len({row for row, _ in known_values}))
            )
    return ranges


@lru_cache(maxsize=16)
def _published_ranges(facts: Facts, chip: str) -> tuple[AspectRange, ...]:
    """Range of each aspect over the published rows of a chip ('': all), computed once."""
    return tuple(aspect_ranges(facts, _published_configurations(), chip))


def _applies(aspect: Aspect, config: Configuration) -> bool:
    """Whether an aspect concerns the pool that a configuration measures."""
    if config.pool == "exchange":
        return aspect.pool in ("", "decode") and aspect.name not in NOT_OF_EXCHANGE
    return bool(config.pool) and aspect.pool in ("", config.pool)


NOT_OF_EXCHANGE = {
    "decode batch", "MTP draft", "MTP acceptance", "expert skew in decode", "KV precision",
}  # fmt: skip


def outside_evidence(
    scenario: Scenario, facts: Facts, known: Sequence[Configuration] | None = None
) -> list[str]:
    """A sentence for each aspect in which a scenario lies outside the ranges of `known` rows (None:
    the published ones). Raises FactError."""
    given_configs, known = known, _published_configurations() if known is None else known
    chips = {pool.chip for pool in pools_by_role(scenario).values()} | {scenario.supernode.chip}
    if unknown_chips := sorted(chips - {*facts.names("chips")}):
        raise FactError(f"no chip is named {unknown_chips[0]}: add it to data/chips")
    remarks = []
    roles = [role for role, *_ in pools(scenario)]
    if roles == ["colocated"]:
        roles = ["prefill", "decode"]
        chip_configs = [
            config for config in known if _pool_chip(config, facts) == chip_of(scenario, "decode")
        ]
        if all(config.scenario.deployment.mode != "colocated" for config in chip_configs):
            remarks.append(
                "Prefill and decode share their iterations (colocated); every published row on "
                "this chip measures the two pools apart."
            )
    roles_by_chip: dict[str, list[str]] = {}
    for role in roles:
        roles_by_chip.setdefault(chip_of(scenario, role), []).append(role)
    for chip, chip_roles in roles_by_chip.items():
        for span in aspect_ranges(
            facts, given_configs, chip
        ):  # None: published rows, whose are stored
            pool = span.aspect.pool
            if pool and pool not in chip_roles:
                continue
            aspect_value = span.aspect.value_of(
                Configuration("", pool or chip_roles[0], scenario, {}), facts
            )
            if aspect_value is not None and not span.holds(aspect_value):
                unit = f" {span.aspect.unit}" if span.aspect.unit else ""
                value_text, range_text = (
                    span.aspect.value_text(aspect_value, facts),
                    span.text(facts),
                )
                remarks.append(
                    f"{span.aspect.title}: {value_text}{unit}; published rows have {range_text}."
                )
    for has_feature, sentence in UNCOMMON:
        if has_feature(scenario) and not any(has_feature(config.scenario) for config in known):
            remarks.append(f"No published row {sentence}.")
    return [*dict.fromkeys(remarks), *_traffic_remarks(scenario, known)]


# What a scenario may have and no published row has.
UNCOMMON: tuple[tuple[Callable[[Scenario], object], str], ...] = (
    (sharing_pool, "splits the cores of a die between prefill and decode"),
    (lambda s: any(pool.offload for pool in pools_by_role(s).values()),
     "offloads attention of decode to prefill NPUs"),
    (lambda s: len({pool.chip for pool in pools_by_role(s).values()}) > 1,
     "has prefill and decode on different chips"),
)  # fmt: skip


def _traffic_remarks(s: Scenario, configurations: Sequence[Configuration]) -> Iterator[str]:
    """Sentences on features of a scenario's traffic that no published row has."""
    lengths_vary = s.workload.arrivals == "trace" or s.workload.lengths != "fixed"
    if lengths_vary and all(
        config.scenario.workload.lengths == "fixed" for config in configurations
    ):
        yield "Lengths vary from request to request; in every published row they are all alike."
    if s.workload.prefix == "sessions" or s.workload.arrivals == "trace":
        yield (
            "What prompts share with earlier ones follows sessions or a recorded trace; "
            "published rows have a fixed share at most."
        )
    if s.workload.arrivals != "closed_loop":
        yield (
            "Load: requests arrive on their own; every published row keeps all slots taken, so "
            "no waiting time in a queue has been checked against a measurement."
        )
