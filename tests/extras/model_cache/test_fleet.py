"""Laws of a fleet that serves several models, and closed forms where there are any."""

import math
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.extras.model_cache.fleet import Dram, Fleet, FleetRun, ServedModel
from twin.lab.library import load_facts

SIZE, LOAD_S, RATE, TOOK_S = 600.0, 2.0, 0.5, 8.0
MODEL = ServedModel("a model", SIZE, LOAD_S, RATE, 1.0, TOOK_S)
FETCH_S = 300.0
FLEET = Fleet((MODEL, MODEL), 1, "local DRAM", SIZE, SIZE / FETCH_S, math.inf, 90.0, 7.0)


@st.composite
def fleets(draw):
    fleet = Fleet(
        (MODEL,) * draw(st.integers(1, 5)), draw(st.integers(1, 4)),
        draw(st.sampled_from(["object storage", "local DRAM", "memory pool"])),
        SIZE * draw(st.floats(0, 6)), SIZE / draw(st.sampled_from([1.0, 20.0, 300.0])),
        draw(st.sampled_from([0.0, 30.0, math.inf])), draw(st.sampled_from([0.0, 90.0])),
        draw(st.sampled_from([0.0, 7.0])),
    )  # fmt: skip
    gaps = draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 40.0, 700.0]), min_size=1, max_size=60))
    model = st.integers(0, len(fleet.models) - 1)
    named = draw(st.lists(model, min_size=len(gaps), max_size=len(gaps)))
    return fleet, named, np.cumsum(gaps).tolist()


@draws(150)
@given(fleets())
def test_every_request_is_begun_once_by_a_slot_that_has_its_model(question):
    fleet, named, arrived_s = question
    out = FleetRun(fleet).serve(named, arrived_s)
    assert out.model.tolist() == named and out.arrived_s.tolist() == arrived_s
    assert (out.wait_s >= 0.0).all() and np.isfinite(out.begun_s).all()
    for model in range(len(fleet.models)):
        assert (np.diff(out.begun_s[out.model == model]) >= 0.0).all()  # in order of arrival
    stays = []
    for k in range(fleet.slots):
        own = [one for one in out.starts if one.slot == k]
        ends = [*(one.begun_s for one in own[1:]), math.inf][: len(own)]
        stays += [(one.model, one.up_s, end_s) for one, end_s in zip(own, ends, strict=True)]
    for one in out.starts:
        assert one.begun_s <= one.ready_s <= one.fetched_s <= one.loaded_s <= one.up_s
    for model, begun_s in zip(named, out.begun_s, strict=True):
        inside = [
            m == model and up <= begun_s and begun_s + TOOK_S <= end + 1e-6 for m, up, end in stays
        ]
        assert any(inside)


@draws(150)
@given(fleets())
def test_bytes_and_time_are_conserved(question):
    fleet, named, arrived_s = question
    out = FleetRun(fleet).serve(named, arrived_s)
    missed = [one for one in out.starts if not one.hit]
    assert all(one.fetched_s - one.ready_s > 0.0 for one in missed)
    if fleet.place == "memory pool":  # who needs what is on its way waits for it
        arrivals = {(one.model, one.fetched_s) for one in missed}
        assert out.fetched_bytes == pytest.approx(SIZE * len(arrivals))
        assert out.dram_bytes <= fleet.dram_bytes
    else:
        assert out.fetched_bytes == SIZE * len(missed)
        assert out.dram_bytes <= fleet.dram_bytes * fleet.slots * (fleet.place == "local DRAM")
    if missed:  # the bucket is no faster than it is
        from_s, to_s = min(o.ready_s for o in missed), max(o.fetched_s for o in missed)
        assert out.fetched_bytes <= fleet.bucket_bytes_per_s * (to_s - from_s) * (1 + 1e-5)
    idle_s = out.held_s - out.starting_s - out.busy_s
    assert idle_s >= -1e-6 and out.busy_s <= TOOK_S * len(named) + 1e-6
    if fleet.idle_s == 0.0:
        assert idle_s == pytest.approx(0.0, abs=1e-6)


@draws(100)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=80),
    st.floats(0, 12),
)
def test_dram_is_an_lru_of_whole_models_and_never_overfull(touched, capacity):
    dram, reference = Dram(capacity), OrderedDict()
    for model, drawn in touched:
        size = reference.get(model, drawn)
        hit = dram.read(model)
        assert hit == (model in reference)
        dram.keep(model, size)
        if size <= capacity:
            reference[model] = size
            reference.move_to_end(model)
        while sum(reference.values()) > capacity:
            reference.popitem(last=False)
        assert list(dram.held.items()) == list(reference.items())
        assert dram.bytes == sum(reference.values()) <= capacity


@draws(100)
@given(st.lists(st.integers(0, 9), max_size=120))
def test_more_dram_hits_whatever_less_hits(touched):
    drams = [Dram(room) for room in range(11)]
    for model in touched:
        hits = [dram.read(model) for dram in drams]
        assert hits == sorted(hits)
        for dram in drams:
            dram.keep(model, 1.0)


def test_one_model_never_switches_and_leaves_at_the_rate_of_its_slot():
    fleet = replace(FLEET, models=(MODEL,))
    out = FleetRun(fleet).serve([0] * 20, [0.0] * 20)
    first_s = fleet.process_s + FETCH_S + LOAD_S
    assert [one.switched for one in out.starts] == [False]
    assert out.begun_s.tolist() == pytest.approx([first_s + k / RATE for k in range(20)])
    assert out.held_s == pytest.approx(first_s + 19 / RATE + TOOK_S)


@pytest.mark.parametrize(("rooms", "weights_s"), [(0, FETCH_S), (1, FETCH_S), (2, 0.0)])
def test_two_models_in_turn_on_one_slot_wait_for_what_dram_does_not_hold(rooms, weights_s):
    fleet = replace(FLEET, dram_bytes=rooms * SIZE)
    arrived_s = [1000.0 * k for k in range(12)]
    out = FleetRun(fleet).serve([0, 1] * 6, arrived_s)
    assert out.wait_s[2:] == pytest.approx(weights_s + LOAD_S + fleet.regroup_s)
    close = FleetRun(fleet).serve([0, 1] * 6, [t / 1000.0 for t in arrived_s])
    turn_s = close.begun_s[1] + 5 / RATE  # the first slot's turn: five more of them had come
    assert [one.model for one in close.starts] == [0, 1]
    assert close.begun_s.max() == pytest.approx(turn_s)


def test_who_is_claimed_takes_what_had_come_and_nothing_later():
    out = FleetRun(FLEET).serve([0, 0, 0, 1, 0], [0.0, 1.0, 2.0, 3.0, 4.0])
    up_s = FLEET.process_s + FETCH_S + LOAD_S
    switch_s = FETCH_S + LOAD_S + FLEET.regroup_s
    ends_s = up_s + 3 / RATE + TOOK_S  # 0, 1, 2 and 4 came while it started
    assert out.begun_s[[0, 1, 2, 4]] == pytest.approx([up_s + k / RATE for k in range(4)])
    assert out.begun_s[3] == pytest.approx(ends_s + switch_s)
    later = FleetRun(FLEET).serve([0, 1, 0], [0.0, up_s + 1.0, up_s + 2.0])
    assert later.begun_s[1] == pytest.approx(up_s + TOOK_S + switch_s)
    assert later.begun_s[2] == pytest.approx(later.begun_s[1] + TOOK_S + switch_s)


def test_a_model_scales_to_zero_and_back():
    fleet = replace(FLEET, idle_s=60.0, slots=2)
    out = FleetRun(fleet).serve([0, 0, 0], [0.0, 450.0, 2000.0])
    start_s = fleet.process_s + LOAD_S
    assert [one.hit for one in out.starts] == [False, True]
    assert out.wait_s.tolist() == pytest.approx([start_s + FETCH_S, 0.0, start_s])
    held_s = 450.0 + TOOK_S + 60.0 + start_s + TOOK_S + 60.0
    assert out.held_s == pytest.approx(held_s) and out.busy_s == pytest.approx(3 * TOOK_S)


def test_a_queue_longer_than_a_start_gets_another_slot_and_a_shorter_one_does_not():
    fleet = replace(FLEET, slots=3, place="memory pool")
    wait_s = fleet.process_s + LOAD_S  # of another slot, once DRAM has the model
    for queue, starts in ((int(RATE * wait_s), 1), (int(RATE * wait_s) + 3, 2)):
        out = FleetRun(fleet).serve([0] * (queue + 1), [0.0] + [1000.0] * queue)
        assert len(out.starts) == starts


def test_every_slot_at_once_shares_the_bucket_or_fetches_once():
    bare = replace(FLEET, slots=8, idle_s=0.0, process_s=0.0, regroup_s=0.0)
    for place, cold_s in (("object storage", 8), ("local DRAM", 8), ("memory pool", 1)):
        run = FleetRun(replace(bare, place=place))
        assert run.load_everywhere(0, 0.0) == pytest.approx(cold_s * FETCH_S + LOAD_S)
        if place != "object storage":
            assert run.load_everywhere(0, 1e4) == pytest.approx(LOAD_S)


def test_a_start_takes_what_the_measured_logs_took():
    """vLLM's log of DeepSeek-V4-Pro on 8 B200: weights 11 s, ready after 1 min 44 s, 7 min without
    kernel caches; the sum only, for its other parts are from these two. Its third start, with
    weights from a cold disk in 70 s, is from none: 8 min 1 s. ReviveMoE's restart on
    CloudMatrix384, 83.1 s, is from another log."""
    facts = load_facts()
    process_s, compile_s = facts.si("startup.process"), facts.si("startup.compile")
    logged = replace(MODEL, load_s=11.0)
    fleet = Fleet((logged,), 1, "memory pool", SIZE, 1e12, 0.0, process_s, 0.0)
    warm_s = FleetRun(fleet).serve([0], [0.0]).wait_s[0]
    cold = replace(fleet, process_s=process_s + compile_s)
    assert warm_s == pytest.approx(104.0)
    assert FleetRun(cold).serve([0], [0.0]).wait_s[0] == pytest.approx(420.0)
    disk = replace(cold, models=(replace(MODEL, load_s=70.0),))
    assert FleetRun(disk).serve([0], [0.0]).wait_s[0] == pytest.approx(481.0, rel=0.01)
    restart = replace(fleet, models=(replace(MODEL, load_s=0.3),))
    assert FleetRun(restart).serve([0], [0.0]).wait_s[0] == pytest.approx(83.1, rel=0.15)
