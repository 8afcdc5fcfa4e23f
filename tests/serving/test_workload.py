"""Requests made from a workload section: rates, lengths, sharing, and what changes what."""

import numpy as np
import pytest

from twin.facts import facts_from_tables
from twin.serving.workload import WorkloadError, generate
from twin.spec import Workload

FACTS = facts_from_tables({})


def make(horizon_s=1000.0, seed=1, block_tokens=128, **fields):
    return generate(Workload(**fields), horizon_s, seed, block_tokens, FACTS)


@pytest.mark.parametrize(("arrivals", "cv"), [("poisson", 1.0), ("gamma", 3.0), ("gamma", 0.3)])
def test_gaps_have_the_asked_rate_and_variation(arrivals, cv):
    r = make(arrivals=arrivals, rate_req_per_s=50.0, cv=cv)
    gaps = np.diff(r.arrival_s, prepend=0.0)
    assert len(r) / 1000.0 == pytest.approx(50.0, abs=5 * cv * (50.0 / 1000.0) ** 0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)
    assert (np.diff(r.arrival_s) >= 0).all() and r.arrival_s[-1] < 1000.0


def test_uniform_arrivals_are_evenly_spaced():
    r = make(horizon_s=2.0, arrivals="uniform", rate_req_per_s=4.0)
    assert r.arrival_s.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def test_closed_loop_lets_the_first_clients_in():
    w = Workload(arrivals="closed_loop", concurrency=3)
    r = generate(w, 10.0, 1, 128, FACTS, count=5)
    assert r.arrival_s.tolist() == [0.0, 0.0, 0.0, np.inf, np.inf]
    with pytest.raises(WorkloadError, match="needs a count"):
        generate(w, 10.0, 1, 128, FACTS)


def test_unshared_prompts_own_their_whole_blocks():
    r = make(horizon_s=1.0, arrivals="uniform", rate_req_per_s=3.0, input_tokens=300)
    assert r.segment_blocks.tolist() == [2, 2, 2]
    assert r.segment_first.tolist() == [0, 2, 4]
    assert r.blocks == 6 and not r.has_prefix


def test_count_cuts_but_does_not_change():
    w = Workload()
    few, many = (generate(w, 100.0, 1, 128, FACTS, count=c) for c in (10, None))
    assert (few.arrival_s == many.arrival_s[:10]).all() and len(few) == 10


def test_another_seed_gives_other_arrivals():
    assert make(seed=1).arrival_s[0] != make(seed=2).arrival_s[0]
