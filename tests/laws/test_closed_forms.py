"""Closed forms in the limit, through the whole product.

Fixed seeds, so never flaky. Bar V1 of the reliability notes: theory is within 4 standard errors
(of 20 batch means) and within 5 %.
"""

import math

import numpy as np
import polars as pl
import pytest

from tests.draws import FACTOR
from tests.engine.small import end_of, recorded, small
from twin.engine.build import build_world
from twin.engine.clock import steps_in
from twin.engine.contention.kv_transfer import advance_transfers
from twin.engine.lifecycle.machine import Machine
from twin.engine.lists import append
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.hardware.fabric import build_fabric
from twin.hardware.prices import nic
from twin.lab.library import load_facts

# A front end alone: the answer is one token long, and its KV is in place.
FRONT_END = {
    "deployment.mode": "decode_only",
    "deployment.decode.batch_per_npu": 512,
    "workload.output_tokens": 1,
    "workload.input_tokens": 10,
    "warmup_s": 0.0,
}
ALONE = {"workload.arrivals": "uniform", "workload.rate_req_per_s": 0.5}


def batch_means(values, batches=20):
    """Mean of a correlated series and its standard error."""
    cut = values[: values.size // batches * batches].reshape(batches, -1).mean(axis=1)
    return cut.mean(), cut.std(ddof=1) / math.sqrt(batches)


def agrees(values, theory):
    mean, error = batch_means(np.asarray(values))
    assert abs(mean - theory) <= 4 * error, (mean, theory, error)
    assert mean == pytest.approx(theory, rel=0.05)


def waits(run, begin, end):
    return (run.tables["requests"][end] - run.tables["requests"][begin]).drop_nulls().to_numpy()


def m_d_c_wait(load, servers):
    """Mean wait over service of M/D/c: L(t + D) = max(L(t) - c, 0) + Poisson(load)."""
    n = 100 + 40 * servers
    arrive = np.exp([k * math.log(load) - load - math.lgamma(k + 1) for k in range(n)])
    state = arrive.copy()
    for _ in range(1500):
        kept = np.concatenate(([state[: servers + 1].sum()], state[servers + 1 :]))
        state = np.convolve(kept, arrive)[:n]
    inside = (np.arange(n) * state).sum()
    return inside / load - 1.0


def test_the_oracle_knows_m_d_1():
    for rho, wait in ((0.5, 0.5), (0.8, 2.0)):
        assert m_d_c_wait(rho, 1) == pytest.approx(wait, rel=1e-6)


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.5), (1, 0.8), (4, 0.8), (16, 0.8)])
def test_front_end_is_m_d_c(servers, rho):
    service_s = 0.001 * servers
    answer = simulate(
        small(
            FRONT_END
            | {
                "front_end.api_servers": servers,
                "front_end.service_ms": 1e3 * service_s,
                "workload.rate_req_per_s": rho / 0.001,
                "horizon_s": 150.0,
            }
        ),
        load_facts(),
    )
    wait = waits(answer, "arrival_s", "frontend_s") - service_s
    assert wait.min() > -1e-9
    agrees(wait / service_s, m_d_c_wait(rho * servers, servers))


def test_d_d_1_by_hand():
    asked = FRONT_END | {"workload.arrivals": "uniform", "workload.rate_req_per_s": 4.0}
    for service_ms, done in ((100.0, [0.1, 0.35, 0.6, 0.85]), (500.0, [0.5, 1.0, 1.5, 2.0])):
        answer = simulate(
            small(asked | {"front_end.api_servers": 1, "front_end.service_ms": service_ms}),
            load_facts(),
        )
        assert answer.tables["requests"]["frontend_s"].to_list()[:4] == pytest.approx(done)


def test_a_prefill_instance_that_takes_one_prompt_at_a_time_is_m_d_1():
    asked = {
        "deployment.mode": "prefill_only",
        "deployment.prefill.instances": 1,
        "deployment.prefill.tokens_per_npu": 250,  # 4 NPUs: one prompt of 1,000 tokens
        "memory_pool.enabled": False,
        "warmup_s": 0.0,
    }
    alone = simulate(small(asked | ALONE), load_facts())
    service_s = float(waits(alone, "prefill_start_s", "prefill_end_s").min())
    answer = simulate(
        small(
            asked
            | {"workload.rate_req_per_s": 0.7 / service_s, "horizon_s": 60_000 * service_s / 0.7}
        ),
        load_facts(),
    )
    served = waits(answer, "prefill_start_s", "prefill_end_s")
    assert served == pytest.approx(np.full(served.size, service_s))
    agrees(waits(answer, "routed_s", "prefill_start_s") / service_s, 0.7 / (2 * 0.3))


def test_a_decode_instance_with_one_slot_is_m_d_1():
    asked = {
        "deployment.mode": "decode_only",
        "deployment.decode.instances": 1,
        "deployment.decode.npus_per_instance": 1,
        "deployment.decode.batch_per_npu": 1,
        "workload.output_tokens": 101,
        "front_end.service_ms": 0.0,
        "step_s": 0.001,  # what a free slot is late to be seen
        "warmup_s": 0.0,
    }
    alone = simulate(small(asked | ALONE), load_facts())
    service_s = float(waits(alone, "first_token_s", "finish_s").min())
    rate, served = 0.7 / service_s, 20_000 if FACTOR > 1 else 8_000
    answer = simulate(
        small(asked | {"workload.rate_req_per_s": rate, "horizon_s": served / rate}), load_facts()
    )
    seen_s = service_s + 0.0005  # mean lateness of half a step
    load = rate * seen_s
    agrees(waits(answer, "frontend_s", "routed_s") / seen_s, load / (2 * (1 - load)))


def test_a_saturated_closed_loop_obeys_the_response_time_law():
    # Reliability notes 1.2: bottleneck 0.2 s, think 1 s, 50 clients: X = 5, R = 9.
    answer = simulate(
        small(
            FRONT_END
            | {
                "workload.arrivals": "closed_loop",
                "workload.concurrency": 50,
                "workload.think_s": 1.0,
                "front_end.api_servers": 1,
                "front_end.service_ms": 200.0,
                "horizon_s": 400.0,
                "warmup_s": 40.0,
                "step_s": 0.01,
            }
        ),
        load_facts(),
    )
    assert answer.summary["throughput_req_per_s"] == pytest.approx(5.0, rel=1e-3)
    assert answer.summary["e2e_s_mean"] == pytest.approx(9.0, rel=0.02)


def test_a_lone_client_turns_once_per_think_and_service():
    answer = simulate(
        small(
            FRONT_END
            | {
                "workload.arrivals": "closed_loop",
                "workload.concurrency": 1,
                "front_end.service_ms": 300.0,
                "horizon_s": 100.0,
                "step_s": 0.001,
            }
        ),
        load_facts(),
    )
    assert answer.summary["throughput_req_per_s"] == pytest.approx(1 / 0.3, rel=0.01)


def test_little_holds_station_by_station():
    answer = simulate(
        small(
            {
                "workload.rate_req_per_s": 80.0,
                "front_end.api_servers": 2,
                "front_end.service_ms": 20.0,
                "horizon_s": 60.0,
                "step_s": 0.003,
                "deployment.kv_transfer_plane": "vpc",
            }
        ),
        load_facts(),
    )
    rows, windows = answer.tables["requests"], answer.tables["windows"]
    for station, begin, end in (
        ("front_end_queue", "arrival_s", "frontend_s"),
        ("prefill_queue", "routed_s", "prefill_start_s"),
        ("prefill_running", "prefill_start_s", "prefill_end_s"),
        ("decode_running", "transfer_end_s", "finish_s"),
    ):
        left = rows.select(
            (pl.col(end).fill_null(60.0) - pl.col(begin)).filter(pl.col(begin).is_not_null())
        ).to_series()
        inside = windows[station].mean()
        assert inside == pytest.approx(left.sum() / 60.0, rel=0.05, abs=0.02), station
    assert abs(answer.summary["little_error"]) < 0.005


def test_a_lone_transfer_takes_latency_and_bytes_over_rate():
    for plane in ("rdma", "ub", "vpc"):
        scenario = small(
            {
                "deployment.kv_transfer_plane": plane,
                "memory_pool.enabled": False,  # whose blocks would share the VPC plane
                "workload.arrivals": "trace",
                "workload.trace.digest": "0" * 64,
            }
        )
        setup, world = end_of(scenario, trace=recorded([0.5], [3000], [4]))
        price = nic(build_fabric(scenario.supernode, load_facts()), 0, plane)
        size = 3000 * setup.costs.kv_bytes_per_token
        took = world.request.transfer_end_s[0] - world.request.prefill_end_s[0]
        assert took == pytest.approx(price.latency_s + size / price.bytes_per_s, rel=1e-6)


def transfers(start_s, tokens, token_s=1.0, step_s=1.0):
    """When transfers end that all leave by one die and arrive at one: token_s a token alone."""
    n = len(start_s)
    horizon_s = float(max(start_s) + 10 * token_s * sum(tokens[-50:]) + 10)
    setup = set_up(
        small(
            {
                "horizon_s": horizon_s,
                "step_s": 1.0,
                "warmup_s": 0.0,
                "workload.arrivals": "trace",
                "workload.trace.digest": "0" * 64,
                "deployment.decode.batch_per_npu": 4096,
            }
        ),
        load_facts(),
        recorded([0.0] * n, list(tokens), [2] * n),
    )
    world = Machine(setup, load_facts(), build_world(setup)).world
    world.transfer.granted[:] = world.settings.kv_bytes_per_token / token_s
    world.transfer.capacity[:] = world.transfer.granted
    request, state = world.request, world.transfer
    request.ready_s[:] = start_s
    request.rank[:] = 3
    request.prefill_instance[:] = 1
    state.fresh = np.zeros(n, np.int32)  # in a run, no more set off than decode has slots
    for i in range(n):
        append(state.unsent, 0, request.following, i)
    for k in range(steps_in(horizon_s, step_s)):
        advance_transfers(world, (k + 1) * step_s)
    return request.transfer_end_s


@pytest.mark.parametrize("step_s", [1.0, 0.3])
@pytest.mark.parametrize(
    ("start_s", "tokens", "end_s"),
    [
        ([0, 0, 0], [1, 2, 3], [3, 5, 6]),
        ([0, 2], [4, 4], [6, 8]),  # B begins when A is half done: 1.5 and 2 times alone
        ([0, 0, 0, 0], [5, 5, 5, 5], [20, 20, 20, 20]),
        ([0, 7], [3, 2], [3, 9]),
        ([0.25], [3], [3.25]),
    ],
)
def test_transfers_on_one_port_share_it(start_s, tokens, end_s, step_s):
    assert transfers(start_s, tokens, step_s=step_s).tolist() == pytest.approx(end_s, abs=1e-6)


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        pytest.param((100,), (1.0,), marks=pytest.mark.long),
        ((20, 50, 400), (0.5, 0.3, 0.2)),
    ],
)
def test_poisson_transfers_on_one_port_are_m_g_1_ps(sizes, shares):
    # E[T | x] = x / (1 - rho), whatever the distribution of x.
    rng = np.random.Generator(np.random.PCG64(7))
    n, rho = 40_000 if FACTOR > 1 else 15_000, 0.6
    tokens = rng.choice(sizes, n, p=shares)
    start_s = np.cumsum(rng.exponential(0.01 * tokens.mean() / rho, n))
    took_s = transfers(start_s, tokens.tolist(), 0.01, step_s=start_s[-1] / 40) - start_s
    for size in sizes:
        agrees(took_s[tokens == size] / (0.01 * size), 1 / (1 - rho))
