"""Who asks and who is let in: clients that give up and try again, tenants, admission."""

from typing import Literal

from twin.scenario.declaration import Section, choice, quantity, text, unless

TRIES_AGAIN = unless("clients.retries", 0)
TENANTS = unless("tenants", ())


class Clients(Section):
    """How long clients wait for an answer, and what they do when none comes."""

    timeout_s: float = quantity(0.0, "s", "Time-out of the first token", (0, 86_400), step=1)
    """A client without a first token after so long cancels its request; 0: it waits for ever."""
    answer_timeout_s: float = quantity(
        0.0, "s", "Time-out of the whole answer", (0, 86_400), step=10,
        applies=unless("deployment.mode", "prefill_only")
    )  # fmt: skip
    """A client without its last token after so long cancels, in the middle of the answer too."""
    retries: int = quantity(0, "times", "Tries again", (0, 20))
    """How often a client asks again after a time-out or a refusal, each time from the beginning."""
    backoff_s: float = quantity(0.5, "s", "First back-off", (0, 3600), applies=TRIES_AGAIN)
    """Pause before the first retry; it doubles with each, less up to a quarter at random.
    [openai-python _base_client.py, _constants.py]"""
    backoff_most_s: float = quantity(8.0, "s", "Longest back-off", (0, 86_400), applies=TRIES_AGAIN)
    """What the pause does not grow beyond. [openai-python _base_client.py, _constants.py]"""


class Admission(Section):
    """Who is let in first, and who is refused (HTTP 429)."""

    order: Literal["fifo", "priority", "fair"] = choice(
        "fifo", "Order of waiting requests",
        options={"fifo": "First come, first served", "fair": "Weighted fair queueing"},
        applies=TENANTS,
    )  # fmt: skip
    """In which order requests get decode room and join prefill batches: as they came; tenants of a
    higher priority first; or tenants by weight, in tokens. [Goyal et al. 1996 (start-time fair
    queueing); Sheng et al. 2024 (VTC)]"""
    shed_at: float = quantity(
        0.0, "x TTFT SLO", "Refuse above a predicted TTFT of", (0, 100), step=0.1
    )
    """Load shedding: a request is refused when its predicted TTFT, with the batch that it would
    join and its hand-off, exceeds the SLO by this factor; 0: none is refused."""
    rate_req_per_s: float = quantity(0.0, "req/s", "Rate limit", (0, 200_000), step=1)
    """Requests above this rate are refused (a token bucket that holds a second); 0: no limit."""
    in_flight: int = quantity(0, "requests", "Concurrency limit", (0, 2_000_000), step=10)
    """Requests that may wait and be served at a time, others are refused; 0: no limit."""


class Tenant(Section):
    """A tenant, or a class of service: its part of the traffic and its SLO."""

    name: str = text(..., "Name", least=1, most=40)
    share: float = quantity(1.0, "parts", "Part of the sessions", (0.001, 1000))
    """Parts of the sessions that are this tenant's."""
    priority: int = quantity(0, "", "Priority", (-100, 100))
    """Higher goes first where `admission.order` is priority."""
    weight: float = quantity(1.0, "", "Weight", (0.001, 1000))
    """Share of the machine where `admission.order` is fair, and what fairness is measured by."""
    ttft_s: float = quantity(0.0, "s", "TTFT SLO", (0, 3600))
    """Longest time to first token of this tenant; 0: that of `slo`."""
    tpot_ms: float = quantity(0.0, "ms", "TPOT SLO", (0, 10_000))
    """Longest mean time per output token of this tenant; 0: that of `slo`."""
    pool_share: float = quantity(0.0, "of the memory pool", "Quota", (0, 1))
    """Quota of its namespace in the memory pool; 0: an even part of what others leave."""
    rate_req_per_s: float = quantity(0.0, "req/s", "Rate limit", (0, 200_000))
    """Requests above this rate are refused; 0: no limit."""
    in_flight: int = quantity(0, "requests", "Concurrency limit", (0, 2_000_000))
    """Requests that may wait and be served at a time; 0: no limit."""
