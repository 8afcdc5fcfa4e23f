"""Kernels as compiled code runs them: for tests that hold them against plain Python."""

from functools import cache

from numba import njit


@cache
def compiled(kernel):
    return njit(kernel)
