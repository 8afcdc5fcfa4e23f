"""Max-min fairness: published vectors, the bottleneck property, and what it does not promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.draws import draws
from tests.hardware.max_min import Flow, max_min, max_min_rates
from twin.hardware.sharing import max_min_levels

ONE = {"c": 1.0}

VECTORS = {
    "SimGrid: penalties share inversely": ([Flow(ONE), Flow(ONE, penalty=2)], {"c": 3}, [2, 1]),
    "SimGrid: weights take more": ([Flow(ONE), Flow({"c": 2.0})], {"c": 3}, [1, 1]),
    "SimGrid: two constraints": (
        [Flow({"a": 1, "b": 2}), Flow({"a": 2}, penalty=2), Flow({"b": 1})],
        {"a": 20, "b": 60},
        [10, 5, 40],
    ),
    "parking lot": (
        [Flow({"a": 1, "b": 1, "c": 1}), Flow({"a": 1}), Flow({"b": 1}), Flow({"c": 1})],
        {"a": 1, "b": 1, "c": 1},
        [0.5, 0.5, 0.5, 0.5],
    ),
    "two links": (
        [Flow({"a": 1, "b": 1}), Flow({"a": 1}), Flow({"b": 1})],
        {"a": 1, "b": 2},
        [0.5, 0.5, 1.5],
    ),
    "a wider link may slow a flow": (
        [Flow({"a": 1, "b": 1}), Flow({"a": 1}), Flow({"b": 1})],
        {"a": 4, "b": 2},
        [1, 3, 1],
    ),
    "one flow less may slow another": (
        [Flow({"a": 1, "b": 1}), Flow({"b": 1})],
        {"a": 1, "b": 2},
        [1, 1],
    ),
    "share weights": ([Flow(ONE), Flow(ONE, penalty=0.5), Flow(ONE)], {"c": 8}, [2, 4, 2]),
    "one flow bounded": ([Flow(ONE, bound=1), Flow(ONE), Flow(ONE)], {"c": 9}, [1, 4, 4]),
    "incast, eight to one": (
        [Flow({f"out{i}": 1, "in": 1}) for i in range(8)],
        {f"out{i}": 100 for i in range(8)} | {"in": 100},
        [12.5] * 8,
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name):
    flows, capacities, expected = VECTORS[name]
    assert max_min(flows, capacities).tolist() == expected


@st.composite
def networks(draw):
    links = draw(st.integers(1, 6))
    capacities = {i: draw(st.floats(0.1, 100)) for i in range(links)}
    crossings = st.sets(st.integers(0, links - 1), min_size=1)
    weight, bound = st.sampled_from([1.0, 2.0, 0.5]), st.sampled_from([math.inf, 0.5, 5.0])
    flows = [
        Flow({i: draw(weight) for i in sorted(draw(crossings))}, draw(weight), draw(bound))
        for _ in range(draw(st.integers(1, 8)))
    ]
    return flows, capacities


def load(flows, rates, link):
    return sum(f.links.get(link, 0.0) * r for f, r in zip(flows, rates, strict=True))


@given(networks())
@draws(200)
def test_every_flow_is_at_its_bound_or_fastest_on_a_full_link(network):
    # The bottleneck property is necessary and sufficient for max-min fairness.
    flows, capacities = network
    rates = max_min(flows, capacities)
    full = set()
    for link, capacity in capacities.items():
        carried = load(flows, rates, link)
        assert carried <= capacity * (1 + 1e-9)
        if carried >= capacity * (1 - 1e-9):
            full.add(link)
    level = [r * f.penalty for r, f in zip(rates, flows, strict=True)]
    for f, flow in enumerate(flows):
        at_bound = rates[f] >= flow.bound * (1 - 1e-9)
        fastest = any(
            all(level[f] >= level[g] * (1 - 1e-9) for g, o in enumerate(flows) if link in o.links)
            for link in full & set(flow.links)
        )
        assert at_bound or fastest


def by_linear_programs(flows, capacities):
    """Max-min by definition: raise the least level as far as it goes, fix who is held, go on."""
    rates = np.full(len(flows), np.nan)
    while np.isnan(rates).any():
        growing = [f for f in range(len(flows)) if np.isnan(rates[f])]
        # Variables: the rates of the growing flows and the level z, which is to be largest.
        links, room, levels = [], [], []
        for link, capacity in capacities.items():
            links.append([flows[f].links.get(link, 0.0) for f in growing] + [0.0])
            room.append(capacity - sum(
                flow.links.get(link, 0.0) * r
                for flow, r in zip(flows, rates, strict=True) if not np.isnan(r)
            ))  # fmt: skip
        for k, f in enumerate(growing):
            row = np.zeros(len(growing) + 1)
            row[k], row[-1] = -flows[f].penalty, 1.0
            levels.append(row)
        best = linprog(
            np.append(np.zeros(len(growing)), -1.0),
            A_ub=np.array([*levels, *links]),
            b_ub=np.array([*np.zeros(len(growing)), *np.maximum(room, 0.0)]),
            bounds=[(0, flows[f].bound) for f in growing] + [(0, None)],
        )
        # A flow whose level has a price cannot rise in any optimum.
        held = best.ineqlin.marginals[: len(growing)] < -1e-9
        assert held.any()
        for k, f in enumerate(growing):
            if held[k]:
                rates[f] = best.x[-1] / flows[f].penalty
    return rates


@given(networks())
@draws(200)
def test_rates_are_those_of_the_linear_programs(network):
    flows, capacities = network
    assert max_min(flows, capacities) == pytest.approx(
        by_linear_programs(flows, capacities), rel=1e-6
    )


@given(networks(), st.randoms(use_true_random=False))
@draws(100)
def test_the_order_of_flows_and_links_changes_nothing(network, random):
    flows, capacities = network
    order = list(range(len(flows)))
    random.shuffle(order)
    names = list(capacities)
    random.shuffle(names)
    again = max_min([flows[f] for f in order], {n: capacities[n] for n in names})
    assert again == pytest.approx(max_min(flows, capacities)[order], rel=1e-9)


@given(networks())
@draws(100)
def test_twice_the_capacity_is_twice_the_rate_to_the_bit(network):
    flows, capacities = network
    unbounded = [Flow(f.links, f.penalty) for f in flows]
    twice = max_min(unbounded, {link: 2 * c for link, c in capacities.items()})
    assert np.array_equal(twice, 2 * max_min(unbounded, capacities))


@given(networks(), st.integers(0, 5))
@draws(100)
def test_a_wider_link_never_lowers_the_smallest_level(network, link):
    flows, capacities = network
    link %= len(capacities)
    penalty = np.array([f.penalty for f in flows])
    wider = max_min(flows, capacities | {link: 2 * capacities[link]})
    assert (wider * penalty).min() >= (max_min(flows, capacities) * penalty).min() * (1 - 1e-9)


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(ValueError, match="flow 0 crosses 'x'"):
        max_min([Flow({"x": 1.0})], {"c": 1.0})
    with pytest.raises(ValueError, match="unlimited"):
        max_min([Flow({})], {"c": 1.0})


def test_a_dead_link_stops_its_flows_only():
    assert max_min([Flow({"a": 1}), Flow({"b": 1})], {"a": 0, "b": 2}).tolist() == [0, 2]


@draws(200)
@given(data=st.data())
def test_levels_of_overloaded_links_are_those_of_progressive_filling(data):
    flows, links = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 6))
    share = st.sampled_from([0.0, 0.0, 0.05, 0.3, 0.5, 0.9, 1.0])
    parts = np.array(data.draw(st.lists(st.lists(share, min_size=links, max_size=links),
                                        min_size=flows, max_size=flows)))  # fmt: skip
    bound = st.sampled_from([0.0, 0.1, 0.4, 1.0, 1.0])
    most = np.array(data.draw(st.lists(bound, min_size=flows, max_size=flows)))
    f, i = np.nonzero(parts)
    start = np.searchsorted(f, np.arange(flows + 1))
    by_link = np.argsort(i, kind="stable")
    link_start = np.searchsorted(i[by_link], np.arange(links + 1))
    crossings, by_owner = (start, i, parts[f, i]), (link_start, f[by_link], parts[f, i][by_link])
    level, load = most.copy(), (parts * most[:, None]).sum(axis=0)
    max_min_levels(
        start[:-1], start[1:], *crossings[1:], link_start[:-1], link_start[1:], *by_owner[1:], most,
        data.draw(st.permutations(range(links)).map(np.array)), links, load, np.zeros(links),
        np.ones(links, np.int8), np.zeros(flows, np.int8), level,
    )  # fmt: skip
    rates = max_min_rates(*crossings, np.ones(flows), most, np.ones(links))
    np.testing.assert_allclose(level, rates, atol=1e-9)
