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
    NONE,
    any_of,
    append,
    heap_pop,
    heap_push,
    pop,
    remove_after,
    total,
)


class ListsAgainstDeques(RuleBasedStateMachine):
    """Three lists over twelve items, each item in at most one of them."""

    rows = st.integers(0, 2)

    @initialize()
    def begin(self):
        self.head = np.full(3, NONE, np.int32)
        self.tail = np.full(3, NONE, np.int32)
        self.following = np.full(12, NONE, np.int32)
        self.known = [deque() for _ in range(3)]
        self.free = list(range(12))

    @precondition(lambda self: self.free)
    @rule(row=rows, data=st.data())
    def add(self, row, data):
        item = self.free.pop(data.draw(st.integers(0, len(self.free) - 1)))
        append(self.head, self.tail, row, self.following, item)
        self.known[row].append(item)

    @rule(row=rows)
    def take_first(self, row):
        expected = self.known[row].popleft() if self.known[row] else NONE
        assert pop(self.head, self.tail, row, self.following) == expected
        if expected != NONE:
            self.free.append(expected)

    @rule(row=rows, data=st.data())
    def take_any(self, row, data):
        known = self.known[row]
        if not known:
            return
        at = data.draw(st.integers(0, len(known) - 1))
        before = known[at - 1] if at else NONE
        remove_after(self.head, self.tail, row, self.following, before, known[at])
        self.free.append(known[at])
        del known[at]

    @invariant()
    def same_items_in_the_same_order(self):
        for row, known in enumerate(getattr(self, "known", ())):
            walked, at = [], self.head[row]
            while at != NONE:
                walked.append(int(at))
                at = self.following[at]
            assert walked == list(known)
            assert self.tail[row] == (known[-1] if known else NONE)


TestLists = ListsAgainstDeques.TestCase
TestLists.settings = draws(60, stateful_step_count=40)


@draws(100)
@given(st.lists(st.floats(0, 9) | st.none(), max_size=60))
def test_the_heap_gives_the_least_first(todo):
    for push, take in ((heap_push, heap_pop), (compiled(heap_push), compiled(heap_pop))):
        values, size, known = np.zeros(60), np.zeros(1, np.int64), []
        for value in todo:
            if value is not None:
                push(values, size, value)
                heapq.heappush(known, value)
            elif known:
                assert take(values, size) == heapq.heappop(known)
            assert size[0] == len(known)


@draws(40)
@given(st.lists(st.integers(-1000, 1000), max_size=20), st.integers(-1000, 1000))
def test_sums_and_bounds_of_a_row(numbers, least):
    values = np.array(numbers, np.float64)
    assert total(values) == sum(numbers) == compiled(total)(values)
    assert any_of(values, least) == any(n >= least for n in numbers)
    assert any_of(values, least) == compiled(any_of)(values, least)
