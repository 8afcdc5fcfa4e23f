"""The store: answers in a database and a folder of artefacts. Finished ones never change. Read
`models`, `engines`, `migrate`, `artefacts`, `statements`, `visitors`, then the others."""

from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.handle import Store, open_store
from twin.lab.store.models import ImportRow, RunRow, ScenarioRow
from twin.lab.store.owner import Owner
from twin.lab.store.statements import Page
