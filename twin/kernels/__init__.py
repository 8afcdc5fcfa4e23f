"""Compiled code: how it is made, found again and handed its memory; and streams of randomness."""

from twin.kernels import borrowed as borrowed  # tells numba what every group of columns is
