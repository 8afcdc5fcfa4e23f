"""What a run's clients are at time zero: rows of requests, the prepared stream, tenants."""

import math

import numpy as np

from twin.engine import codes as w
from twin.engine.clients.returns import ATTEMPTS
from twin.engine.columns import Gate, Loop, Turns
from twin.engine.settings import Settings
from twin.engine.setup import Setup
from twin.kernels.rng import stream_key, uniforms
from twin.scenario import Admission, Scenario, Tenant
from twin.workload.profile import first_turns
from twin.workload.requests import Requests


def client_sizes(setup: Setup, settings: Settings) -> dict[str, int]:
    """Numbers of request rows, turns and returning clients, by dimension name."""
    s, rows = setup.scenario, setup.requests.arrival_s.size
    turns = rows if settings.dynamic else 0
    several = len(s.tenants) > 1
    if settings.dynamic:
        rows *= 1 + settings.client_retries
    return {
        "requests": rows,
        "made": rows if settings.dynamic or settings.patient else 1,
        "gated": rows if settings.gated else 1,
        "turns": turns,
        "tenanted": setup.requests.arrival_s.size if several else 0,
        "clients": max(s.workload.concurrency, turns, 1) + 1,
    }


def request_rows(requests: Requests, settings: Settings, rows: int) -> dict[str, np.ndarray]:
    """Columns of requests that are known before the run; a dynamic run starts with empty rows."""
    if settings.dynamic:
        empty = np.zeros(rows, np.int32)
        return {
            "arrival_s": np.full(rows, math.inf), "input_tokens": empty,
            "output_tokens": empty.copy(), "session": empty.copy(),
        }  # fmt: skip
    return {
        # A closed loop writes it.
        "arrival_s": requests.arrival_s.copy() if settings.closed_loop else requests.arrival_s,
        "input_tokens": requests.input_tokens,
        "output_tokens": requests.output_tokens,
        "session": requests.session,
    }


def prepared_turns(requests: Requests, settings: Settings) -> Turns:
    """The prepared stream of a dynamic run."""
    n = requests.arrival_s.size if settings.dynamic else 0
    following = np.full(n, w.NONE, np.int32)
    pause_s = np.zeros(n)
    if n and requests.waits_for is not None and requests.pause_s is not None:
        later = np.flatnonzero(requests.waits_for >= 0)
        following[requests.waits_for[later]] = later
        pause_s = np.maximum(requests.pause_s, 0.0)
    return Turns(
        {"turns": n}, input_tokens=requests.input_tokens[:n],
        output_tokens=requests.output_tokens[:n], session=requests.session[:n], following=following,
        pause_s=pause_s,
    )  # fmt: skip


def clients_due(setup: Setup, sizes: dict[str, int], settings: Settings) -> Loop:
    """Heap of the times at which clients send by themselves: staggered clients of a closed loop,
    and in a dynamic run all turns that do not wait for an answer. A sorted row is a valid heap."""
    loop, load, requests = Loop(sizes), setup.scenario.workload, setup.requests
    begins, turns = np.zeros(0), np.zeros(0, np.int64)
    if settings.closed_loop:
        begins = first_turns(load.concurrency, load.ramp_s)
        if (residents := setup.residents) is not None:  # the others come as those before them end
            others = load.concurrency - len(residents)
            begins = np.arange(others) / residents.rate_req_per_s
        elif settings.dynamic and not begins.size:
            begins = np.zeros(min(load.concurrency, requests.arrival_s.size))
        turns = np.full(begins.size, w.NONE)
    elif settings.dynamic:
        turns = np.arange(setup.at_start, requests.arrival_s.size)
        if requests.waits_for is not None:
            turns = turns[requests.waits_for[turns] < 0]
        begins, turns = requests.arrival_s[turns], turns * ATTEMPTS
    loop.due_s[: begins.size] = begins
    loop.turn[: begins.size] = turns
    loop.size[0] = begins.size
    return loop


def gate_of(setup: Setup, sizes: dict[str, int]) -> Gate:
    """Limits of each tenant, and in the last row those of the whole machine."""
    s, n = setup.scenario, sizes["tenanted"]
    tenants = s.tenants or (Tenant(name="all"),)
    limits: tuple[Tenant | Admission, ...] = (*tenants, s.admission)
    return Gate(
        sizes,
        tenant=tenants_of(s, setup.requests.session[:n]),
        priority=np.array([t.priority for t in tenants], float),
        weight=np.array([t.weight for t in tenants], float),
        ttft_s=np.array([t.ttft_s or s.slo.ttft_s for t in tenants], float),
        rate=np.array([each.rate_req_per_s for each in limits], float),
        most=np.array([each.in_flight for each in limits]),
    )


def tenants_of(s: Scenario, session: np.ndarray) -> np.ndarray:
    """Tenant of each session i4[n], as i1[n], drawn by the tenants' shares."""
    shares = np.cumsum([t.share for t in s.tenants] or [1.0])
    points = uniforms(stream_key(s.seed, "tenants"), session.astype(np.int64)) * shares[-1]
    return np.searchsorted(shares, points, side="right").astype(np.int8)
