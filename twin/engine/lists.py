"""First-in-first-out lists, a heap, and loops over plain arrays.

A list is a head and a tail in arrays with one row per list, linked through `following`, which has
one row per request: a request is in at most one list.
"""

from __future__ import annotations

import numpy as np

from twin.compiled import kernel

NONE = -1


@kernel
def append(head: np.ndarray, tail: np.ndarray, row: int, following: np.ndarray, item: int) -> None:
    """Put an item at the end of list `row`."""
    following[item] = NONE
    if head[row] == NONE:
        head[row] = item
    else:
        following[tail[row]] = item
    tail[row] = item


@kernel
def pop(head: np.ndarray, tail: np.ndarray, row: int, following: np.ndarray) -> int:
    """Take the first item of list `row`, NONE when it is empty."""
    item = head[row]
    if item != NONE:
        head[row] = following[item]
        if head[row] == NONE:
            tail[row] = NONE
        following[item] = NONE
    return item


@kernel
def remove_after(
    head: np.ndarray, tail: np.ndarray, row: int, following: np.ndarray, before: int, item: int
) -> None:
    """Take `item` out of list `row`; `before` is the item ahead of it, NONE for the first."""
    if before == NONE:
        head[row] = following[item]
    else:
        following[before] = following[item]
    if tail[row] == item:
        tail[row] = before
    following[item] = NONE


@kernel
def heap_push(values: np.ndarray, size: np.ndarray, value: float) -> None:
    """Add a value to a binary min-heap values[:size[0]]."""
    k = size[0]
    size[0] += 1
    while k > 0 and values[(k - 1) // 2] > value:
        values[k] = values[(k - 1) // 2]
        k = (k - 1) // 2
    values[k] = value


@kernel
def heap_pop(values: np.ndarray, size: np.ndarray) -> float:
    """Take the least value of a binary min-heap values[:size[0]] with at least one value."""
    least = values[0]
    size[0] -= 1
    n = size[0]
    moved = values[n]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= n:
            break
        if child + 1 < n and values[child + 1] < values[child]:
            child += 1
        if values[child] >= moved:
            break
        values[k] = values[child]
        k = child
    values[k] = moved
    return least


@kernel
def fill(values: np.ndarray, value: float) -> None:
    """Set all values of a row."""
    for k in range(values.size):
        values[k] = value


@kernel
def copy(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a row into one of the same length."""
    for k in range(source.size):
        target[k] = source[k]


@kernel
def any_of(values: np.ndarray, least: float) -> bool:
    """Whether one of some values is `least` or more."""
    some = False
    for k in range(values.size):
        some |= values[k] >= least
    return some


@kernel
def total(values: np.ndarray) -> float:
    """The sum, of four partial sums: in a fixed order in which few additions await each other."""
    a = b = c = d = 0.0
    whole = values.size - values.size % 4
    for k in range(0, whole, 4):
        a += values[k]
        b += values[k + 1]
        c += values[k + 2]
        d += values[k + 3]
    for k in range(whole, values.size):
        a += values[k]
    return (a + b) + (c + d)


@kernel
def largest(values: np.ndarray) -> float:
    """The largest of at least one value."""
    most = values[0]
    for k in range(1, values.size):
        most = max(most, values[k])
    return float(most)
