"""What a stranger may hand in: how it is read, and sound examples."""

import json

from tests.doors.on_disk import on_disk
from tests.extras.model_import.test_reader import QWEN3, V3
from twin.extras.model_import.reader import ConfigError, import_model

READERS = {
    "config": (on_disk(lambda path: import_model(path, "mine"), "config.json"), (ConfigError,))
}
FILES = {"config": (import_model, ConfigError)}


def sound() -> dict[str, list[tuple[str, bytes]]]:
    return {"config": [("json", json.dumps(table).encode()) for table in (V3, QWEN3)]}
