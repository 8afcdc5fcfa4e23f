"""What a stranger may hand in: how it is read, and sound examples."""

import gzip
import json

from tests.extras.count_import.test_reader import AS_JSON, COUNTS, CSV, npy, npz
from twin.extras.count_import.reader import CountsError, read_counts

READERS = {"counts": (lambda data: read_counts(data, "counts"), (CountsError,))}
FILES = {"counts": (read_counts, CountsError)}


def sound() -> dict[str, list[tuple[str, bytes]]]:
    arrays = [npy(COUNTS), npz(logical_count=COUNTS), gzip.compress(npy(COUNTS))]
    texts = [AS_JSON, json.dumps(COUNTS.tolist()).encode()]
    return {
        "counts": [
            *(("json", text) for text in texts),
            ("csv", CSV),
            *(("binary", array) for array in arrays),
        ]
    }
