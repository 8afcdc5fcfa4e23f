"""The traffic: when requests arrive, how long they are, what they share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twin.scenario.declaration import DIGEST, Section, choice, quantity


class Trace(Section):
    """A recorded request stream, named by the digest of its content."""

    name: str = choice("", "File name the trace was read from, for people.")
    digest: str = Field(
        "",
        pattern=DIGEST,
        description="SHA-256 of the canonical request table; empty: no trace.",
        json_schema_extra={"unit": "", "source": ""},
    )
    rate_multiplier: float = quantity(
        1.0,
        "x",
        "Squeezes the trace's time: the same requests arrive this many times faster.",
        low=0.001,
        high=100_000,
    )
    tree_copies: int = quantity(
        1,
        "copies",
        "Copies of the whole request stream under new block ids, interleaved: scales load "
        "and working set together.",
        low=1,
        high=4096,
    )
    dequantise: bool = choice(
        True,
        "Spread requests that share one coarse timestamp evenly at random over that interval.",
        source="workloads.md: Mooncake timestamps are quantised to 3 s",
    )
    max_requests: int = quantity(
        0, "requests", "Keep only the first requests; 0 keeps all.", low=0, high=100_000_000
    )


class Workload(Section):
    """The traffic: when requests arrive, how long they are, what they share."""

    arrivals: Literal["poisson", "gamma", "uniform", "closed_loop", "trace"] = choice(
        "poisson",
        "Poisson, Gamma (bursty), evenly spaced, a closed loop of clients, or a recorded trace.",
    )
    rate_req_per_s: float = quantity(
        60.0, "req/s", "Mean arrival rate of requests.", low=0.001, high=200_000
    )
    cv: float = quantity(
        1.0,
        "",
        "Coefficient of variation of Gamma inter-arrival times; 1 is Poisson, above is bursty.",
        low=0.05,
        high=20,
    )
    concurrency: int = quantity(
        832, "requests", "Requests in flight in a closed loop.", low=1, high=2_000_000
    )
    think_s: float = quantity(
        0.0, "s", "Mean pause of a closed-loop client between answers.", low=0, high=3600
    )
    lengths: str = choice(
        "fixed",
        "'fixed' or a fitted length distribution of data/workloads (for example "
        "mooncake-conversation).",
    )
    input_tokens: int = quantity(
        4096, "tokens", "Prompt length when lengths are fixed.", low=1, high=1_000_000
    )
    output_tokens: int = quantity(
        256, "tokens", "Answer length when lengths are fixed.", low=1, high=200_000
    )
    prefix: Literal["none", "shared", "sessions"] = choice(
        "none",
        "What prompts share: nothing; a popular prefix; or sessions whose turns extend the last.",
    )
    shared_fraction: float = quantity(
        0.5,
        "of input",
        "Share of each prompt that is a popular prefix (prefix = shared).",
        low=0,
        high=0.99,
    )
    prefix_groups: int = quantity(
        64, "prefixes", "Distinct popular prefixes (prefix = shared).", low=1, high=1_000_000
    )
    follow_up_probability: float = quantity(
        0.4,
        "",
        "Chance that a request continues an earlier session (prefix = sessions).",
        low=0,
        high=0.99,
        source="workloads.md 2.1",
    )
    turn_gap_s: float = quantity(
        123.0,
        "s",
        "Median gap between the turns of a session (prefix = sessions).",
        low=0.1,
        high=86_400,
        source="workloads.md 2.1",
    )
    trace: Trace = Trace()
