"""The traffic: when requests arrive, how long they are, what they share."""

from itertools import pairwise
from typing import Literal

from pydantic import field_validator

from twin.scenario.declaration import (
    DIGEST,
    Section,
    choice,
    quantity,
    rows,
    section,
    text,
    unless,
    when,
)

GENERATED = unless("workload.arrivals", "trace")
STATED_LENGTHS = (GENERATED, when("workload.lengths", "fixed", "range"))
RANGE = (GENERATED, when("workload.lengths", "range"))
SHARED_PREFIX = (GENERATED, when("workload.prefix", "shared"))
SESSIONS = (GENERATED, when("workload.prefix", "sessions"))
OPEN_SESSIONS = (*SESSIONS, unless("workload.arrivals", "closed_loop"))
SHAPED = when("workload.profile.shape", "ramp", "step", "spike", "day")
SUDDEN = when("workload.profile.shape", "step", "spike")
SPIKE = when("workload.profile.shape", "spike")
DAILY = when("workload.profile.shape", "day", "servegen_r1_day")
CLOSED_LOOP = when("workload.arrivals", "closed_loop")


class Trace(Section):
    """A recorded request stream, named by the digest of its content."""

    name: str = choice("", "Trace", group="")
    """File name the trace was read from, for people."""
    digest: str = text("", "Trace digest", pattern=DIGEST, group="")
    """SHA-256 of the canonical request table; empty: no trace."""
    rate_multiplier: float = quantity(1.0, "x", "Rate multiplier", (0.001, 100_000))
    """Compresses the trace's time: the same requests arrive this many times faster."""
    tree_copies: int = quantity(1, "copies", "Tree copies", (1, 4096))
    """Copies of the whole request stream under new block ids, interleaved: scales load and
    working set together."""
    dequantise: bool = choice(True, "Spread coarse timestamps")
    """Spread requests that share one coarse timestamp evenly at random over that interval.
    [workloads.md: Mooncake timestamps are quantised to 3 s]"""
    max_requests: int = quantity(
        0, "requests", "Requests kept, at most", (0, 100_000_000), step=1000
    )
    """Keep only the first requests; 0 keeps all."""


class Piece(Section):
    """A stretch of the run in which rate and lengths are other than the profile says."""

    at_s: float = quantity(0.0, "s", "From", (0, 604_800))
    """When it begins; it lasts to the next row, the last one to the end of the run."""
    rate: float = quantity(1.0, "x", "Rate", (0, 1000))
    """Factor on the rate of the profile."""
    input: float = quantity(1.0, "x", "Prompts", (0.001, 1000))
    """Factor on the lengths of prompts that are not replayed."""
    output: float = quantity(1.0, "x", "Answers", (0.001, 1000))
    """Factor on the lengths of answers that are not replayed."""


class Profile(Section):
    """How the rate of an open arrival process moves over the run."""

    shape: Literal["constant", "ramp", "step", "spike", "day", "servegen_r1_day"] = choice(
        "constant", "Rate over time", options={
            "ramp": "Ramp over the run",
            "day": "Day and night",
            "servegen_r1_day": "A day of DeepSeek-R1 (ServeGen)",
        }, also="burst, diurnal",
    )  # fmt: skip
    """Constant; from the low to the high factor over the run; low before a time and high after it;
    high for a while; between both once a period; or as 73 clients of DeepSeek-R1 asked over a day
    (mean 1). [alibaba/ServeGen deepseek-r1: windows of 600 s]"""
    low: float = quantity(0.5, "x", "Low factor", (0, 100), applies=SHAPED, step=0.1)
    """Factor on the rate where the profile is low; recorded arrivals come that much slower."""
    high: float = quantity(1.5, "x", "High factor", (0.001, 100), applies=SHAPED, step=0.1)
    """Factor on the rate where the profile is high."""
    at_s: float = quantity(30.0, "s", "Change at", (0, 604_800), applies=SUDDEN, step=1)
    """When the step or the spike begins."""
    lasts_s: float = quantity(10.0, "s", "Spike lasts", (0.1, 86_400), applies=SPIKE, step=1)
    """How long the rate stays high."""
    period_s: float = quantity(
        86_400.0, "s", "Length of a day", (1, 604_800), applies=DAILY, step=60
    )
    """A day's length: 86,400 s, or less to see a whole one in a short run."""
    begins_s: float = quantity(
        0.0, "s", "Time of day at the start", (0, 604_800), applies=DAILY, step=60, since=4
    )
    """How much of the day is over when the run begins: a region whose clocks are ahead, or a run
    that begins at noon."""
    pieces: tuple[Piece, ...] = rows("Rate by piece", most=2000, since=4)
    """Factors on rate and lengths from given times on, over whatever shape; none: 1."""
    lengths: bool = choice(
        False, "Lengths follow the day too",
        applies=(GENERATED, when("workload.profile.shape", "servegen_r1_day")),
    )  # fmt: skip
    """Prompts and answers are longer or shorter by time of day, as other clients ask: mean lengths
    of the day stay. [alibaba/ServeGen deepseek-r1: clients' lengths by their rates]"""

    @field_validator("pieces")
    @classmethod
    def _refuse_disorder(cls, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Return the pieces unchanged. Raises ValueError unless each begins after the one before
        it."""
        begins_s = [piece.at_s for piece in pieces]
        if any(next_s <= first_s for first_s, next_s in pairwise(begins_s)):
            raise ValueError("pieces begin one after the other: put their rows in order of at_s")
        return pieces

    @property
    def flat(self) -> bool:
        """Whether the rate of arrivals is the same over the whole run."""
        return self.shape == "constant" and not self.pieces


class Workload(Section):
    """The traffic: when requests arrive, how long they are, what they share."""

    arrivals: Literal["poisson", "gamma", "uniform", "closed_loop", "trace"] = choice(
        "poisson", "Arrivals", options={"uniform": "Evenly spaced", "trace": "Recorded trace"}
    )
    """Poisson, Gamma (bursty), evenly spaced, a closed loop of clients, or a recorded trace."""
    rate_req_per_s: float = quantity(
        60.0, "req/s", "Request rate", (0.001, 200_000),
        applies=when("workload.arrivals", "poisson", "gamma", "uniform"),
    )  # fmt: skip
    """Mean arrival rate of requests."""
    cv: float = quantity(
        1.0, "", "Burstiness (coefficient of variation)", (0.05, 20),
        applies=when("workload.arrivals", "gamma"),
    )  # fmt: skip
    """Coefficient of variation of Gamma inter-arrival times; 1 is Poisson, above is bursty."""
    concurrency: int = quantity(
        832, "requests", "Requests in flight", (1, 2_000_000), applies=CLOSED_LOOP,
        also="clients, concurrency",
    )  # fmt: skip
    """Requests in flight in a closed loop."""
    think_s: float = quantity(0.0, "s", "Think time", (0, 3600), step=1, applies=CLOSED_LOOP)
    """Mean pause of a closed-loop client between requests."""
    ramp_s: float = quantity(0.0, "s", "Ramp-up", (0, 86_400), step=1, applies=CLOSED_LOOP, since=2)
    """Time over which the clients begin, evenly; 0: all at once, so that answers of one length stay
    in step. A turn's length keeps them out of it."""
    prompts: int = quantity(
        0, "requests", "Requests in all", (0, 50_000_000), step=100, applies=GENERATED, since=2
    )
    """A finite benchmark: so many requests come, at their rate or from their clients, and the
    machine drains; 0: they come to the end of the run."""
    lengths: str = choice(
        "fixed", "Prompt and output lengths", files="workloads", options={
            "fixed": "Fixed", "range": "Uniform range",
            "servegen-deepseek-r1": "ServeGen DeepSeek-R1",
            "mooncake-conversation": "Mooncake conversation",
            "deepseek-service": "DeepSeek service", "azure-2023-conv": "Azure 2023 conversation",
            "sharegpt": "ShareGPT", "arxiv-summarisation": "arXiv summarisation",
        }, applies=GENERATED,  # fmt: skip
    )  # fmt: skip
    """'fixed', evenly drawn from a range, or a fitted length distribution of data/workloads (for
    example mooncake-conversation)."""
    input_tokens: int = quantity(
        4096, "tokens", "Prompt length", (1, 1_000_000), applies=STATED_LENGTHS
    )
    """Prompt length when lengths are fixed; the longest of a range."""
    output_tokens: int = quantity(
        256, "tokens", "Output length", (1, 200_000), applies=STATED_LENGTHS
    )
    """Output length when lengths are fixed; the longest of a range."""
    shortest: float = quantity(
        0.8, "share", "Shortest length", (0, 1), applies=RANGE, since=4, step=0.1,
        also="random range ratio",
    )  # fmt: skip
    """Shortest prompt and output over the longest: lengths are drawn evenly between, each by
    itself, as serving benchmarks draw random prompts. [sgl-project/sglang bench_serving.py,
    random_range_ratio]"""
    prefix: Literal["none", "shared", "sessions"] = choice(
        "none", "Shared prefix", options={"none": "Nothing", "shared": "A popular prefix"},
        group="Shared prefixes", applies=GENERATED,
    )  # fmt: skip
    """What prompts share: nothing; a popular prefix; or sessions whose turns extend the last."""
    shared_fraction: float = quantity(
        0.5, "of input", "Shared part of a prompt", (0, 0.99), group="Shared prefixes",
        applies=SHARED_PREFIX,
    )  # fmt: skip
    """Share of each prompt that is a popular prefix."""
    prefix_groups: int = quantity(
        64, "prefixes", "Popular prefixes", (1, 1_000_000), group="Shared prefixes",
        applies=SHARED_PREFIX,
    )  # fmt: skip
    """Distinct popular prefixes."""
    follow_up_probability: float = quantity(
        0.4, "", "Follow-up probability", (0, 0.99), group="Shared prefixes", applies=SESSIONS
    )
    """Chance that a request continues an earlier session. [workloads.md 2.1]"""
    turn_gap_s: float = quantity(
        123.0, "s", "Gap between turns", (0.1, 86_400), group="Shared prefixes", applies=SESSIONS
    )
    """Median gap between the turns of a session; where turns wait, after the answer. [workloads.md
    2.1]"""
    turns: Literal["timed", "wait"] = choice(
        "wait", "Next turn of a session",
        options={"timed": "At its time", "wait": "Waits for the answer"}, group="Shared prefixes",
        applies=unless("workload.arrivals", "closed_loop"), since=2,
    )  # fmt: skip
    """When a session's next turn comes: at its time, whatever happens; or, as a person or a tool
    does, when the answer is out and a pause is over. A trace's pauses are its think times, where
    it has them, else its gaps; they keep their length, only sessions begin faster."""
    tool_share: float = quantity(
        0.0, "of turns", "Turns that a tool asks for", (0, 1), step=0.05, group="Shared prefixes",
        applies=OPEN_SESSIONS, since=2,
    )  # fmt: skip
    """Share of the follow-ups that come from an agent's tool and not from a person."""
    tool_gap_s: float = quantity(
        5.0, "s", "Gap of a tool call", (0.01, 86_400), group="Shared prefixes",
        applies=(*OPEN_SESSIONS, unless("workload.tool_share", 0.0)), since=2,
    )  # fmt: skip
    """Median gap before a turn that a tool asks for. [workloads.md 2.5]"""
    profile: Profile = section(Profile, applies=unless("workload.arrivals", "closed_loop"), since=2)
    trace: Trace = section(Trace, applies=when("workload.arrivals", "trace"))
