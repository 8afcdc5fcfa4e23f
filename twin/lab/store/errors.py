"""What can go wrong with stored things, each as one sentence for a person."""

from twin.lab.files import NotWritten


class StoreError(ValueError):
    """An operation that the store refuses: one sentence naming what, where and a remedy."""


class NoTable(StoreError):
    """A table that a run does not have."""


class StoreFull(StoreError, NotWritten):
    """A result that could not be stored, for lack of disk space or rights."""


class UnknownId(StoreError):
    """An id that this store does not hold."""

    def __init__(self, kind: str, name: str):
        """Say that there is no `kind` (run, scenario, ...) of this id."""
        hint = "an id opens only in the twin that stored it"
        super().__init__(f"no {kind} here has the id {name}: {hint}")
