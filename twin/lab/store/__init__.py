"""The store: a memory of answers, in a database and a folder of artefacts.

Scenarios are values named by their digest; runs are attempts with their own unguessable id;
tables and traces are Parquet files named by their SHA-256. What is finished is never changed.

Reading order: `models` (the tables), `engines` (the one place that knows which database it is),
`guards` and `migrate`, `artefacts` (files), `statements`, `scenarios`, `runs`, `values`, and
`handle`, where `open_store` puts them together. The store knows nothing about
simulating, addresses or the screen.
"""

from twin.lab.store.artefacts import Artefact
from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.handle import Store, open_store
from twin.lab.store.models import ImportRow, RunRow, ScenarioRow
from twin.lab.store.owner import Owner
from twin.lab.store.statements import Page

__all__ = [
    "Artefact",
    "ImportRow",
    "Owner",
    "Page",
    "RunRow",
    "ScenarioRow",
    "Store",
    "StoreError",
    "UnknownId",
    "open_store",
]
