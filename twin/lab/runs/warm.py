"""Independent stages of compiling: each process takes a free one; the result is stored on disk."""

import gc
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from twin.kernels import compiled

Stages = Mapping[str, Callable[[], None]]
Tell = Callable[[str, float | None], None]  # a stage, and how long (s) it took once it is done


def is_ready() -> bool:
    """Whether all stages of the present sources are compiled."""
    return _mark().exists()


def prepare(
    stages: Stages, tell: Tell, *, shared_only: bool = False, later: Collection[str] = ()
) -> None:
    """Compile every stage; shared_only: except those running elsewhere; later: except these."""
    # A compiler makes much that lives and little garbage, and what is here then is here to stay.
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    started_stages = set(later)
    for wait in (False,) if shared_only else (False, True):
        for name in stages:
            if name in started_stages:
                continue
            with _claimed(name, wait=wait) as free:
                if free:
                    started_stages.add(name)
                    start_s = time.monotonic()
                    tell(name, None)
                    stages[name]()
                    _mark(name).touch()
                    tell(name, time.monotonic() - start_s)
    gc.set_threshold(*thresholds)
    gc.freeze()
    if stages and all(_mark(name).exists() for name in stages):
        _mark().touch()


def _mark(stage: str = "all stages") -> Path:
    """Path of the file that marks a stage as done."""
    return _folder() / f"{stage.replace(' ', '-')}.done"


def _folder() -> Path:
    folder = compiled.use_own_cache() / compiled.source_digest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _claimed(stage: str, *, wait: bool) -> Iterator[bool]:
    """Lock a stage against other processes; False if one of them has it and we do not wait."""
    if os.name != "posix":  # no lock that ends with its process: each compiles for itself
        yield True
        return
    import fcntl

    with (_folder() / f"{stage.replace(' ', '-')}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
