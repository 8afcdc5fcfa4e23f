"""How kernels are compiled into an entry."""

import re

from numba import njit

from twin.kernels.compiled import ARITHMETIC
from twin.kernels.passes import EntryCompiler
from twin.policies.memory_pool import empty_pool, evict_next, use_block


@njit(pipeline_class=EntryCompiler, **ARITHMETIC)
def evict_some(pool, row, bits):
    """Four callers: the kernel is not inlined."""
    if bits & 1:
        evict_next(pool, row)
    if bits & 2:
        evict_next(pool, row)
    if bits & 4:
        evict_next(pool, row)
    if bits & 8:
        evict_next(pool, row)


def test_an_entrys_own_copy_of_a_kernel_has_a_name_that_no_other_code_calls():
    """Its arguments may be fewer, and code that called it by the kernel's name ran for minutes."""
    pool = empty_pool(1, 9, 5)
    for block in range(9):
        use_block(pool, 0, block)
    evict_some(pool, 0, 5)
    assert pool.used[0] == 3
    assembly = next(iter(evict_some.inspect_asm().values()))
    names = re.findall(r"^(\S*evict_next\S*):$", assembly, re.MULTILINE)
    assert names
    assert all(name.startswith("internal.") for name in names)
