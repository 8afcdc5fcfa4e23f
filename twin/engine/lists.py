"""First-in-first-out lists, a heap, and loops over plain arrays.

A list is a row of `ends`, head and tail, linked by `following`: a request is in one at most."""

import numpy as np

from twin.engine.codes import HEAD, NONE, TAIL
from twin.kernels.compiled import kernel


@kernel
def append(ends: np.ndarray, row: int, following: np.ndarray, item: int) -> None:
    """Put an item at the end of list `row` of `ends` (head, tail); following: next of each item."""
    put_after(ends, row, following, ends[row, TAIL], item)


@kernel
def pop(ends: np.ndarray, row: int, following: np.ndarray) -> int:
    """Take the first item out of list `row` of `ends` and return it; NONE: the list is empty."""
    item = ends[row, HEAD]
    if item != NONE:
        remove_after(ends, row, following, NONE, item)
    return item


@kernel
def remove_after(ends: np.ndarray, row: int, following: np.ndarray, before: int, item: int) -> None:
    """Take `item` out of list `row` of `ends` (head, tail); before: the preceding item or NONE."""
    if before == NONE:
        ends[row, HEAD] = following[item]
    else:
        following[before] = following[item]
    if ends[row, TAIL] == item:
        ends[row, TAIL] = before
    following[item] = NONE


@kernel
def put_after(ends: np.ndarray, row: int, following: np.ndarray, before: int, item: int) -> None:
    """Put `item` into list `row` of `ends` (head, tail) behind `before` (NONE: at its head)."""
    if before == NONE:
        following[item] = ends[row, HEAD]
        ends[row, HEAD] = item
    else:
        following[item] = following[before]
        following[before] = item
    if ends[row, TAIL] == before:
        ends[row, TAIL] = item


@kernel
def list_length(ends: np.ndarray, row: int, following: np.ndarray) -> int:
    """Number of items in list `row`, from its head ends[row, HEAD] along `following`."""
    item_count, item = 0, ends[row, HEAD]
    while item != NONE:
        item_count, item = item_count + 1, following[item]
    return item_count


@kernel
def remove_item(ends: np.ndarray, row: int, following: np.ndarray, item: int) -> bool:
    """Take an item out of list `row` of `ends` (head, tail); False: the list does not have it."""
    item_before, item_now = NONE, ends[row, HEAD]
    while item_now not in (NONE, item):
        item_before, item_now = item_now, following[item_now]
    if item_now == NONE:
        return False
    remove_after(ends, row, following, item_before, item)
    return True


@kernel
def insert_by_place(
    ends: np.ndarray, row: int, following: np.ndarray, place: np.ndarray,
    begun: np.ndarray, item: int,
) -> None:  # fmt: skip
    """Put an item into list `row` of `ends` by its place: before items of a higher place, after
    items that have begun (begun[item] is not NONE)."""
    last_item = ends[row, TAIL]
    if last_item == NONE or place[last_item] <= place[item]:
        append(ends, row, following, item)
        return
    item_before, item_now = NONE, ends[row, HEAD]
    while item_now != NONE and (begun[item_now] != NONE or place[item_now] <= place[item]):
        item_before, item_now = item_now, following[item_now]
    put_after(ends, row, following, item_before, item)


@kernel
def heap_push(
    values: np.ndarray, items: np.ndarray, size: np.ndarray, value: float, item: int
) -> None:
    """Add a value and its item to a binary min-heap, values[:size[0]] and items; size[0] grows."""
    hole = size[0]
    size[0] += 1
    while hole > 0 and values[(hole - 1) // 2] > value:
        values[hole], items[hole] = values[(hole - 1) // 2], items[(hole - 1) // 2]
        hole = (hole - 1) // 2
    values[hole], items[hole] = value, item


@kernel
def heap_pop(values: np.ndarray, items: np.ndarray, size: np.ndarray) -> float:
    """Remove and return the least of values[:size[0]], a min-heap. The item that belongs to it is
    items[0] before the call."""
    least_value = values[0]
    size[0] -= 1
    item_count = size[0]
    last_value, item = values[item_count], items[item_count]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= item_count:
            break
        if child + 1 < item_count and values[child + 1] < values[child]:
            child += 1
        if values[child] >= last_value:
            break
        values[hole], items[hole] = values[child], items[child]
        hole = child
    values[hole], items[hole] = last_value, item
    return least_value


@kernel
def heap_count(values: np.ndarray, size: int, limit: float) -> int:
    """Number of values of a min-heap, values[:size], that are at most `limit`."""
    value_count = heap_index = 0
    while True:
        if heap_index < size and values[heap_index] <= limit:
            value_count += 1
            heap_index = 2 * heap_index + 1
            continue
        while heap_index > 0 and heap_index % 2 == 0:
            heap_index = (heap_index - 1) // 2
        if heap_index == 0:
            return value_count
        heap_index += 1


@kernel
def insert_sorted(items: np.ndarray, first: int, end: int, item: int) -> int:
    """Insert a number into the sorted items[first:end], which grows by one; returns its index."""
    while end > first and items[end - 1] > item:
        items[end] = items[end - 1]
        end -= 1
    items[end] = item
    return end


@kernel
def index_of(items: np.ndarray, first: int, item: int) -> int:
    """Index of a number that is certain to be among items[first:]."""
    while items[first] != item:
        first += 1
    return first


@kernel
def fill(values: np.ndarray, value: float) -> None:
    """Set all elements of an array to one value."""
    for i in range(values.size):
        values[i] = value


@kernel
def any_at_least(values: np.ndarray, least: float) -> bool:
    """Whether any element of an array is `least` or more."""
    is_any = False
    for i in range(values.size):
        is_any |= values[i] >= least
    return is_any


@kernel
def total(values: np.ndarray) -> float:
    """Sum of an array by four partial sums: a fixed order whose additions can run in parallel."""
    sum_0 = sum_1 = sum_2 = sum_3 = 0.0
    multiple_of_4 = values.size - values.size % 4
    for i in range(0, multiple_of_4, 4):
        sum_0 += values[i]
        sum_1 += values[i + 1]
        sum_2 += values[i + 2]
        sum_3 += values[i + 3]
    for i in range(multiple_of_4, values.size):
        sum_0 += values[i]
    return (sum_0 + sum_1) + (sum_2 + sum_3)
