"""Engine: the only place where time passes; it alone knows both costs and policies."""

from twin.kernels.compiled import register_kernels

register_kernels()
