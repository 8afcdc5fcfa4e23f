"""What can go wrong with stored things, each as one sentence for a person."""

from twin.lab.files import NotWritten


class StoreError(ValueError):
    """The store cannot do that: one sentence naming what, where and what would help."""


class StoreFull(StoreError, NotWritten):
    """The disk, or the right to write, is missing: an answer could not be stored."""


class UnknownId(StoreError):
    """An id that this store does not hold."""

    def __init__(self, kind: str, name: str):
        super().__init__(
            f"no {kind} here has the id {name}: an id opens only in the twin that stored it"
        )
        self.kind = kind
        self.name = name
