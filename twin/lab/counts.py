"""Imported expert counts as runs use them: how often each expert of each layer was picked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CountsTable:
    """Counts of one model's experts, as a file says. counts f8[layers, experts]: MoE layers only,
    in order. note: what was derived or left out."""

    name: str
    format: str
    counts: Floats
    note: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the counts alone, by which a scenario names them."""
        return digest_of(self.counts)


def digest_of(counts: Floats) -> str:
    """SHA-256 (hex) of the canonical table: shape, then counts as little-endian f8 by row."""
    content = hashlib.sha256(f"expert counts 1 {counts.shape[0]} {counts.shape[1]}\n".encode())
    content.update(np.ascontiguousarray(counts, "<f8").tobytes())
    return content.hexdigest()
