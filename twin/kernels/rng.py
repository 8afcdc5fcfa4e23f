"""Randomness without state: a number is a hash of (stream key, index), the key of one scenario seed
and a name. So draws need no order, and a new stream changes no other. `uniform`, `exponential`,
`weibull` and `normal` of the same (key, index) are views of the same bits: give each purpose its
own key.

The hash is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at counter `index`. Transcendental
functions are scalar calls, because vectorised ones differ between processors."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from twin.kernels.compiled import compiled_form, kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
SHIFT_11, SHIFT_27, SHIFT_30, SHIFT_31 = (np.uint64(n) for n in (11, 27, 30, 31))
MASK = (1 << 64) - 1
SECOND_HALF = np.uint64(1 << 63)  # normal's second uniform lives in the upper half of the counters
TO_UNIT = 2.0**-53
BELOW_ONE = 1.0 - TO_UNIT
TWO_PI = 2.0 * math.pi


def stream_key(seed: int, name: str) -> np.uint64:
    """Key of the stream `name` under a scenario seed: the first 8 bytes of a SHA-256."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def bits(key: np.uint64, index: int) -> np.uint64:
    """64 random bits: SplitMix64 started at `key`, at step `index` (any integer)."""
    mixed_bits = int(key) + (int(index) + 1) * int(GOLDEN) & MASK
    mixed_bits = (mixed_bits ^ (mixed_bits >> 30)) * int(MIX_1) & MASK
    mixed_bits = (mixed_bits ^ (mixed_bits >> 27)) * int(MIX_2) & MASK
    return np.uint64(mixed_bits ^ (mixed_bits >> 31))


@compiled_form(bits)
def _bits(key: Any, index: Any) -> Any:
    """64 random bits (SplitMix64) u8 of keys u8 at steps `index`, for arrays and compiled code."""
    mixed_bits = key + (np.uint64(index) + np.uint64(1)) * GOLDEN
    mixed_bits = (mixed_bits ^ (mixed_bits >> SHIFT_30)) * MIX_1
    mixed_bits = (mixed_bits ^ (mixed_bits >> SHIFT_27)) * MIX_2
    return mixed_bits ^ (mixed_bits >> SHIFT_31)


def multiplicative_hash(number: int) -> np.uint64:
    """A number times an odd constant, modulo 2**64: neighbouring numbers have distant hashes."""
    return np.uint64(int(number) * int(GOLDEN) & MASK)


@compiled_form(multiplicative_hash)
def _multiplicative_hash(number: int) -> np.uint64:
    """A number times an odd constant, modulo 2**64, in compiled code."""
    return np.uint64(number) * GOLDEN


@kernel
def uniform(key: np.uint64, index: int) -> float:
    """Draw `index` of stream `key`: uniform strictly inside (0, 1), a multiple of 2**-54."""
    # Half of a unit is lost to rounding above one half, and so the last number would be 1.
    return min((np.float64(bits(key, index) >> SHIFT_11) + 0.5) * TO_UNIT, BELOW_ONE)


@kernel
def exponential(key: np.uint64, index: int) -> float:
    """Draw `index` of stream `key`: exponential of mean 1, by inversion."""
    return -math.log(uniform(key, index))


@kernel
def weibull(key: np.uint64, index: int, shape: float) -> float:
    """Draw `index` of stream `key`: Weibull of scale 1, whose mean is gamma(1 + 1/shape)."""
    return math.pow(-math.log(uniform(key, index)), 1.0 / shape)


@kernel
def normal(key: np.uint64, index: int) -> float:
    """Draw `index` of stream `key`: standard normal (Box and Muller 1958, the cosine half)."""
    radius = math.sqrt(-2.0 * math.log(uniform(key, index)))
    second_uniform = (np.float64(bits(key ^ SECOND_HALF, index) >> SHIFT_11) + 0.5) * TO_UNIT
    return radius * math.cos(TWO_PI * second_uniform)


@kernel
def lognormal(key: np.uint64, index: int, median: float, sigma: float) -> float:
    """Draw `index` of stream `key`: log-normal; sigma is the deviation of its logarithm."""
    return median * math.exp(sigma * normal(key, index))


@kernel
def gamma(key: np.uint64, index: int, shape: float) -> float:
    """Draw `index` of stream `key`: Gamma of mean `shape` and scale 1 (Marsaglia and Tsang 2000: c,
    d, v, and their boost below shape 1). As some numbers are rejected, each draw has its own
    stream."""
    draw_key = bits(key, index)
    boost = 1.0
    raised_shape = shape
    if shape < 1.0:
        boost = math.pow(uniform(draw_key, 0), 1.0 / shape)
        raised_shape = shape + 1.0
    d = raised_shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    draw_index = 1
    while True:
        normal_draw = normal(draw_key, draw_index)
        v = 1.0 + c * normal_draw
        uniform_draw = uniform(draw_key, draw_index + 1)
        draw_index += 2
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log(uniform_draw) < 0.5 * normal_draw * normal_draw + d - d * v + d * math.log(v):
            return boost * d * v


def apply(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    """Results f8[...] of `function` for each of `values`, one by one: equal on every processor."""
    function_values = map(function, values.ravel().tolist())
    return np.fromiter(function_values, np.float64, values.size).reshape(values.shape)


def apply_to_distinct(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    """Results f8[n] of `function` for `values` f8[n], called once for each distinct value."""
    distinct_values = np.unique(values)
    return apply(function, distinct_values)[np.searchsorted(distinct_values, values)]


def uniforms(keys: np.ndarray | np.uint64, index: np.ndarray) -> np.ndarray:
    """Uniform draws strictly inside (0, 1), f8: `index` i8 of streams `keys` u8, broadcast."""
    random_bits = (_bits(keys, index) >> SHIFT_11).astype(np.float64)
    return np.minimum((random_bits + 0.5) * TO_UNIT, BELOW_ONE)


def normals(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Standard normal draws, f8: `index` i8 of streams `keys` u8, broadcast."""
    radius = np.sqrt(-2.0 * apply(math.log, uniforms(keys, index)))
    second_uniform = (_bits(keys ^ SECOND_HALF, index) >> SHIFT_11).astype(np.float64)
    return radius * apply(math.cos, TWO_PI * ((second_uniform + 0.5) * TO_UNIT))
