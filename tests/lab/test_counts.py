"""Expert counts in the store, by their digest."""

import numpy as np
import pytest

from twin.lab.kinds import CountsTable
from twin.lab.store import UnknownId

COUNTS = np.array([[5.0, 0.0, 3.0, 2.0], [1.0, 1.0, 1.0, 9.0]])


def test_stored_counts_come_back_and_are_no_trace(store):
    table = CountsTable("my.csv", "csv", COUNTS, "a note")
    digest = store.counts.save(table)
    assert store.counts.save(table) == digest
    assert store.counts.load(digest).counts.tolist() == table.counts.tolist()
    [row] = store.counts.search().rows
    assert (row.name, row.about["layers"], row.about["experts"]) == ("my.csv", 2, 4)
    assert store.counts.get(digest).name == row.name and store.counts.get("0" * 64) is None
    assert store.traces.search().total == 0 and store.traces.get(digest) is None
    store.delete_unused(older_than_s=-1)
    again = store.counts.load(digest)
    assert again.counts.tolist() == table.counts.tolist()
    assert (again.name, again.format, again.note) == (table.name, table.format, table.note)
    with pytest.raises(UnknownId, match="no table of expert counts here"):
        store.counts.load("0" * 64)
