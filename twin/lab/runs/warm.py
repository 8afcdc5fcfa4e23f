"""Independent stages of compiling: each process takes a free one; the result is stored on disk."""

import gc
import math
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from twin.kernels import compiled
from twin.lab.files import try_lock

Stages = Mapping[str, Callable[[], None]]
Tell = Callable[[str, float | None], None]  # a stage, and how long (s) it took once it is done


def is_compiled() -> bool:
    """Whether all stages of the present sources are compiled."""
    return _mark_path().exists()


def compile_stages(
    stages: Stages, tell: Tell, *, shared_only: bool = False, later: Collection[str] = ()
) -> None:
    """Compile every stage; tell: called with a stage at its begin (None) and its end (seconds).
    shared_only: do not wait for stages that another process compiles; later: names to leave out."""
    # A compiler makes much that lives and little garbage, and what is here then is here to stay.
    gc.freeze()
    gc_thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    handled_stages = set(later)
    for patience_s in (0.0,) if shared_only else (0.0, math.inf):
        for stage in stages:
            if stage in handled_stages:
                continue
            with try_lock(
                _mark_path(stage).with_suffix(".lock"), patience_s=patience_s
            ) as has_lock:
                if has_lock:
                    handled_stages.add(stage)
                    start_s = time.monotonic()
                    tell(stage, None)
                    stages[stage]()
                    _mark_path(stage).touch()
                    tell(stage, time.monotonic() - start_s)
    gc.set_threshold(*gc_thresholds)
    gc.freeze()
    if stages and all(_mark_path(stage).exists() for stage in stages):
        _mark_path().touch()


def _mark_path(stage: str = "all stages") -> Path:
    """Path of the file that exists once a stage (by default: all stages) is compiled."""
    mark_folder = compiled.use_own_cache() / compiled.source_digest()[:16]
    mark_folder.mkdir(parents=True, exist_ok=True)
    return mark_folder / f"{stage.replace(' ', '-')}.done"
