import numpy as np
import pytest

from twin.hardware.fabric import build_fabric
from twin.kernels.compiled import entry
from twin.metrics.operators import DECODE_OPERATORS
from twin.model.costs import build_costs
from twin.model.decode import decode_iteration_s
from twin.model.mixed import mixed_flops, mixed_iteration_s
from twin.model.prefill import prefill_flops
from twin.model.record import row_of
from twin.scenario import Scenario, with_overrides

ONE = np.array([1.0])


@pytest.fixture
def p(facts):
    s = with_overrides(Scenario(), {"deployment.mode": "colocated"})
    return build_costs(s, facts, build_fabric(s.supernode, facts)).decode


def mixed(p, chunk, requests=48, call=mixed_iteration_s):
    r, c = np.full(320, requests), np.full(320, requests * 4_000.0)
    ops = np.zeros(len(DECODE_OPERATORS))
    took = call(p, r, c, 0, 320, chunk, chunk * 2_048, ONE, ONE, ops)
    assert ops.sum() == pytest.approx(took, rel=1e-12)
    return took


def test_plain_python_and_compiled_code_agree(p):
    compiled = mixed(row_of(p), 65_536.0, call=entry(mixed_iteration_s))
    assert compiled == mixed(p, 65_536.0)


def test_without_a_chunk_it_is_a_decode_iteration(p):
    r, c = np.full(320, 48), np.full(320, 48 * 4_000.0)
    alone = decode_iteration_s(p, r, c, 0, 320, ONE, ONE, np.zeros(len(DECODE_OPERATORS)))
    assert mixed(p, 0.0) == pytest.approx(alone, rel=1e-9)


def test_a_chunk_delays_the_batch_but_shares_the_weights(p):
    together, alone = mixed(p, 65_536.0), mixed(p, 65_536.0, requests=0)
    assert mixed(p, 0.0) < together < mixed(p, 0.0) + alone


def test_a_chunk_computes_as_many_flops_as_in_prefill_but_for_the_module(facts, p):
    s = with_overrides(Scenario(), {"deployment.mode": "prefill_only",
                                    "deployment.decode.mtp_draft_tokens": 0})  # fmt: skip
    prefill = build_costs(s, facts, build_fabric(s.supernode, facts)).prefill
    alone = mixed_flops(p, 0.0, 0.0, 1_000.0, 5e5)
    assert alone == pytest.approx(prefill_flops(prefill, 1_000.0, 5e5), rel=1e-12)
