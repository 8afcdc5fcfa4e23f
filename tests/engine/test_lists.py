"""Lists and heaps over arrays, against Python's own."""

import heapq
from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.draws import draws
from tests.jit import compiled
from twin.engine.lists import (
    HEAD,
    NONE,
    TAIL,
    any_at_least,
    append,
    heap_count,
    heap_pop,
    heap_push,
    insert_by_place,
    list_length,
    pop,
    remove_after,
    remove_item,
    total,
)


class ListsAgainstDeques(RuleBasedStateMachine):
    """Three lists over twelve items, each item in at most one of them."""

    rows = st.integers(0, 2)

    @initialize()
    def begin(self):
        self.ends = np.full((3, 2), NONE, np.int32)
        self.following = np.full(12, NONE, np.int32)
        self.known = [deque() for _ in range(3)]
        self.free = list(range(12))

    @precondition(lambda self: self.free)
    @rule(row=rows, data=st.data())
    def add(self, row, data):
        item = self.free.pop(data.draw(st.integers(0, len(self.free) - 1)))
        append(self.ends, row, self.following, item)
        self.known[row].append(item)

    @rule(row=rows)
    def take_first(self, row):
        expected = self.known[row].popleft() if self.known[row] else NONE
        assert pop(self.ends, row, self.following) == expected
        if expected != NONE:
            self.free.append(expected)

    @rule(row=rows, data=st.data())
    def take_any(self, row, data):
        known = self.known[row]
        if not known:
            return
        at = data.draw(st.integers(0, len(known) - 1))
        before = known[at - 1] if at else NONE
        remove_after(self.ends, row, self.following, before, known[at])
        self.free.append(known[at])
        del known[at]

    @invariant()
    def same_items_in_the_same_order(self):
        for row, known in enumerate(getattr(self, "known", ())):
            walked, at = [], self.ends[row, HEAD]
            while at != NONE:
                walked.append(int(at))
                at = self.following[at]
            assert walked == list(known)
            assert list_length(self.ends, row, self.following) == len(known)
            assert self.ends[row, TAIL] == (known[-1] if known else NONE)


TestLists = ListsAgainstDeques.TestCase
TestLists.settings = draws(60, stateful_step_count=40)


@draws(100)
@given(st.lists(st.floats(0, 9) | st.none(), max_size=60))
def test_the_heap_gives_the_least_first(todo):
    for push, take in ((heap_push, heap_pop), (compiled(heap_push), compiled(heap_pop))):
        values, items, size, known = np.zeros(60), np.zeros(60, int), np.zeros(1, np.int64), []
        for k, value in enumerate(todo):
            if value is not None:
                push(values, items, size, value, k)
                heapq.heappush(known, value)
            elif known:
                assert todo[items[0]] == values[0]
                assert take(values, items, size) == heapq.heappop(known)
            assert size[0] == len(known)
            limit = (known[0] + known[-1]) / 2 if known else 5.0
            assert heap_count(values, size[0], limit) == sum(v <= limit for v in known)


@draws(60)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12), st.randoms())
def test_items_are_inserted_by_place_behind_what_has_begun_and_taken_out_anywhere(items, random):
    n = len(items)
    ends, following = np.full((1, 2), NONE), np.full(n, NONE)
    place, begun = np.zeros(n), np.full(n, NONE)
    known = []
    for i, (at, begins) in enumerate(items):
        place[i] = at
        insert_by_place(ends, 0, following, place, begun, i)
        behind = sum(1 for j in known if begun[j] != NONE)  # these stand in front
        k = len(known)
        while k > behind and place[known[k - 1]] > at:
            k -= 1
        known.insert(k, i)
        if begins:  # only what stands first can begin
            begun[known[behind]] = 0
    walked, at = [], ends[0, HEAD]
    while at != NONE:
        walked.append(int(at))
        at = following[at]
    assert walked == known and ends[0, TAIL] == (known[-1] if known else NONE)
    for i in random.sample(range(n), n):
        assert remove_item(ends, 0, following, i) and not remove_item(ends, 0, following, i)
    assert (ends == NONE).all()


@draws(40)
@given(st.lists(st.integers(-1000, 1000), max_size=20), st.integers(-1000, 1000))
def test_sums_and_bounds_of_a_row(numbers, least):
    values = np.array(numbers, np.float64)
    assert total(values) == sum(numbers) == compiled(total)(values)
    assert any_at_least(values, least) == any(n >= least for n in numbers)
    assert any_at_least(values, least) == compiled(any_at_least)(values, least)
