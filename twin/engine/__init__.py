"""Engine: the only place where time passes; it alone knows both costs and policies."""

from twin.compiled import wake

wake()
