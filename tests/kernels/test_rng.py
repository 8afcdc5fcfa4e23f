"""The counter-based generator: known bits, right moments, independent streams."""

import math

import numpy as np
import pytest
from numba import njit

from twin.kernels import rng

MASK = 2**64 - 1
N = 200_000


def splitmix(key, index):
    z = (key + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@njit(cache=True)
def sample(key, kind, a, n):
    out = np.empty(n)
    for i in range(n):
        if kind == 0:
            out[i] = rng.uniform(key, i)
        elif kind == 1:
            out[i] = rng.exponential(key, i)
        elif kind == 2:
            out[i] = rng.normal(key, i)
        elif kind == 3:
            out[i] = rng.gamma(key, i, a)
        else:
            out[i] = rng.weibull(key, i, a)
    return out


@njit(cache=True)
def compiled_bits(key, index):
    return rng.bits(key, index)


def test_bits_equal_the_generator_of_the_paper_compiled_or_not():
    key = rng.stream_key(7, "arrivals")
    for index in (0, 1, 2, 10**12, 2**63 - 1, -1):
        assert int(rng.bits(key, index)) == splitmix(int(key), index)
        assert int(compiled_bits(key, index)) == splitmix(int(key), index)


def test_splitmix64_reference_vector():
    # Published first outputs for state 1234567 (the reference C program of Vigna).
    got = [int(rng.bits(np.uint64(1234567), i)) for i in range(3)]
    assert got == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_key_depends_on_seed_and_name():
    keys = {int(rng.stream_key(s, n)) for s in (1, 2, 12) for n in ("a", "b", "2/a")}
    assert len(keys) == 9


def test_uniform_is_flat_and_inside():
    u = sample(rng.stream_key(1, "u"), 0, 0.0, N)
    assert u.min() > 0.0 and u.max() < 1.0
    counts = np.histogram(u, 50, (0, 1))[0]
    chi2 = ((counts - N / 50) ** 2 / (N / 50)).sum()
    assert chi2 < 49 + 5 * math.sqrt(2 * 49)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / math.sqrt(N)


@pytest.mark.parametrize(
    ("kind", "a", "mean", "variance"),
    [
        (1, 0.0, 1.0, 1.0),
        (2, 0.0, 0.0, 1.0),
        (3, 4.0, 4.0, 4.0),
        (3, 0.3, 0.3, 0.3),
        (4, 2.0, math.gamma(1.5), math.gamma(2) - math.gamma(1.5) ** 2),
    ],
)
def test_moments(kind, a, mean, variance):
    x = sample(rng.stream_key(3, "moments"), kind, a, N)
    assert x.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / N))
    assert x.var() == pytest.approx(variance, rel=0.06)


def test_streams_are_uncorrelated():
    a = sample(rng.stream_key(1, "a"), 2, 0.0, N)
    b = sample(rng.stream_key(1, "b"), 2, 0.0, N)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(N)


def test_lognormal_median():
    key = rng.stream_key(5, "gap")
    x = np.array([rng.lognormal(key, i, 123.0, 1.0) for i in range(20_000)])
    assert np.median(x) == pytest.approx(123.0, rel=0.05)
    assert np.log(x).std() == pytest.approx(1.0, rel=0.03)


def unmixed(bits):
    """The key whose draw 0 has these bits: every step of SplitMix64 can be taken back."""

    def unshift(z, by):
        for _ in range(64 // by + 1):
            z = bits_of ^ (z >> by)
        return z

    for by, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        bits_of = bits
        bits = unshift(bits, by) * pow(factor, -1, 2**64) & MASK
    return (bits - 0x9E3779B97F4A7C15) & MASK


def test_the_least_and_the_last_number_are_still_inside_the_interval():
    for bits, expected in ((0, 2.0**-54), (MASK, 1.0 - 2.0**-53)):
        key = np.uint64(unmixed(bits))
        assert splitmix(int(key), 0) == bits
        assert rng.uniform(key, 0) == expected
        assert 0.0 < expected < 1.0
