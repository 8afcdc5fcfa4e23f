"""Lengths, fixed or from quantile tables of data/workloads (linear in between). Input and output
are independent: their rank correlation is below 0.12 in every fitted trace."""

from dataclasses import dataclass

import numpy as np

from twin.facts import FactError, Facts
from twin.kernels.rng import uniforms
from twin.scenario import Workload

RELATIVE = 2048  # long prompts are few, and have most pairs
MIDDLES = (np.arange(RELATIVE) + 0.5) / RELATIVE  # of equal parts of a distribution


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Token counts `tokens` f8[k] at probability `levels` f8[k], rising from 0 to 1."""

    levels: np.ndarray
    tokens: np.ndarray

    @property
    def mean(self) -> float:
        """Mean of the distribution, tokens."""
        return self.moment(1)

    def moment(self, k: int) -> float:
        """Mean of the k-th power of the token count, tokens^k."""
        # Between two levels tokens rise evenly.
        intervals = zip(self.levels, self.levels[1:], self.tokens, self.tokens[1:], strict=False)
        return float(sum(
            (next_level - level)
            * sum(tokens**power * next_tokens ** (k - power) for power in range(k + 1)) / (k + 1)
            for level, next_level, tokens, next_tokens in intervals
        ))  # fmt: skip

    @property
    def multiples(self) -> tuple[float, ...]:
        """`RELATIVE` equally likely lengths of the distribution, each divided by its mean."""
        return _relative_to_mean(np.interp(MIDDLES, self.levels, self.tokens))


def relative_lengths(tokens: np.ndarray) -> tuple[float, ...]:
    """`RELATIVE` equally likely quantiles of token counts i4[n], each divided by their mean."""
    sorted_tokens = np.sort(tokens).astype(np.float64)
    levels = np.linspace(0.0, 1.0, sorted_tokens.size)
    return _relative_to_mean(np.interp(MIDDLES, levels, sorted_tokens))


def elapsed_tokens(outputs: np.ndarray) -> float:
    """Mean number of tokens that a request in progress has emitted: E[a^2] / (2 E[a]), where a is
    the number of tokens of an answer, `outputs` i4[n]."""
    return mean_square(outputs) / (2.0 * float(outputs.mean()))


def mean_square(tokens: np.ndarray) -> float:
    """Mean of the squares of token counts, summed in order."""
    return float(np.cumsum(tokens.astype(np.float64) ** 2)[-1] / tokens.size)


def _relative_to_mean(tokens: np.ndarray) -> tuple[float, ...]:
    """Token counts, each divided by their mean."""
    return tuple((tokens / (float(np.cumsum(tokens)[-1]) / tokens.size)).tolist())


def fitted_lengths(facts: Facts, name: str) -> tuple[Quantiles, Quantiles]:
    """(input, output) distributions of data/workloads/<name>.toml; FactError if there is none."""
    path = f"workloads.{name}"
    if f"{path}.levels" not in facts:
        known_names = ", ".join(facts.names("workloads")) or "none"
        raise FactError(
            f"workload.lengths = {name!r} is not in data/workloads; there are: {known_names}"
        )
    levels = np.array(facts[f"{path}.levels"].value, np.float64)
    distributions = []
    for side in ("input", "output"):
        tokens = np.array(facts[f"{path}.{side}"].value, np.float64)
        is_rising = tokens.size == levels.size and (np.diff(tokens) >= 0).all() and tokens[0] >= 1
        if not is_rising or levels[0] != 0 or levels[-1] != 1 or (np.diff(levels) <= 0).any():
            raise FactError(
                f"fact {path}.{side} must hold one rising token count from 1 up for each of its "
                "levels, which rise from 0 to 1"
            )
        distributions.append(Quantiles(levels, tokens))
    return distributions[0], distributions[1]


def drawn_lengths(facts: Facts, workload: Workload) -> tuple[Quantiles, Quantiles]:
    """The (input, output) distributions of lengths: uniform ranges, or tables of data/workloads."""
    if workload.lengths != "range":
        return fitted_lengths(facts, workload.lengths)
    levels, range_shares = np.array([0.0, 1.0]), np.array([workload.shortest, 1.0])
    prompt_lengths, answer_lengths = (
        Quantiles(levels, np.maximum(1.0, longest_tokens * range_shares))
        for longest_tokens in (workload.input_tokens, workload.output_tokens)
    )
    return prompt_lengths, answer_lengths


def draw_lengths(table: Quantiles, key: np.uint64, count: int, *, even: bool = False) -> np.ndarray:
    """Token counts i4[count], at least 1 each, drawn from the distribution `table` with stream
    `key`. even: one from each of `count` equal parts of it, in random order (stratified)."""
    levels, tokens = table.levels, table.tokens
    quantiles = uniforms(key, np.arange(count))
    if even:
        quantiles[np.argsort(quantiles, kind="stable")] = (np.arange(count) + 0.5) / max(count, 1)
    interval = np.minimum(np.searchsorted(levels, quantiles, "right") - 1, levels.size - 2)
    share_of_interval = (quantiles - levels[interval]) / (levels[interval + 1] - levels[interval])
    lengths = tokens[interval] + share_of_interval * (tokens[interval + 1] - tokens[interval])
    return (lengths + 0.5).astype(np.int32)
