"""A database that e8ace38 wrote is migrated, and all that is in it opens as it was."""

import gzip
import json
import tarfile

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tests.conftest import ROOT
from twin.lab.library import presets
from twin.lab.store import open_store
from twin.lab.store.models import Row
from twin.scenario import json_text

FROZEN = ROOT / "tests" / "frozen"
FIELDS = (
    "scenario", "name", "facts_digest", "engine_version", "seed", "queued_s", "state",
    "finished_s", "wall_s", "message", "valid", "result_digest", "summary",
)  # fmt: skip


@pytest.fixture(scope="module")
def frozen():
    return json.loads(gzip.decompress((FROZEN / "database.json.gz").read_bytes()))


@pytest.fixture(scope="module")
def old(tmp_path_factory, frozen):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(FROZEN / frozen["archive"]) as archive:
        archive.extractall(folder, filter="data")
    store = open_store(f"sqlite:///{folder / frozen['database']}")
    yield store
    store.close()


def test_it_was_migrated_after_a_backup_and_nothing_is_damaged(old):
    assert len(list(old.database.path.parent.glob("*before-migration-v0001*"))) == 1
    assert old.find_damage() == []


def test_it_has_exactly_the_tables_of_the_models(old):
    with old.database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Row.metadata) == []


def test_every_scenario_opens_under_the_digest_it_had(old, frozen):
    for said in frozen["scenarios"]:
        row = old.scenarios.get(said["digest"])
        for name in ("name", "question", "trace_digest", "parent", "published", "runs"):
            assert getattr(row, name) == said[name], name
        assert old.scenarios.load(said["digest"]).name == said["name"]
    assert all(old.scenarios.load(digest) for digest in frozen["presets"])


def test_every_run_and_table_is_what_it_was(old, frozen):
    assert old.runs.search(limit=100).total == len(frozen["runs"])
    for said in frozen["runs"]:
        row = old.runs.get(said["id"])
        assert {name: getattr(row, name) for name in FIELDS} == {n: said[n] for n in FIELDS}
        assert old.facts(row.facts_digest).digest == row.facts_digest
        tables = old.runs.tables(row.id)
        assert tables.keys() == said["tables"].keys()
        for name, table in said["tables"].items():
            assert old.runs.table(row.id, name).height == table["rows"]


def test_imported_files_open(old, frozen):
    trace = old.traces.load(frozen["trace"]["digest"])
    assert (trace.name, len(trace)) == (frozen["trace"]["name"], 24)
    assert old.counts.load(frozen["counts"]["digest"]).counts.shape[0] > 0
    assert [row.digest for row in old.counts.search().rows] == [frozen["counts"]["digest"]]


def test_what_is_saved_again_keeps_its_row_and_is_found_by_either_digest(old, frozen):
    before = old.scenarios.search(limit=1).total
    seeded = old.scenarios.store_presets()
    # Presets that begin in the steady state ask anew, and one since copies have a start; what they
    # asked stays and opens.
    asked_anew = set(frozen["presets"]) - set(seeded)
    anew = {p.scenario.name for p in presets() if p.scenario.workload.turns == "wait"}
    names = {old.scenarios.load(digest).name for digest in asked_anew}
    assert names <= anew | {"KV hand-off over UB"}
    assert {old.scenarios.load(digest).start for digest in asked_anew} == {"empty"}
    for said in frozen["scenarios"]:
        scenario = old.scenarios.load(said["digest"])
        assert old.scenarios.save(scenario) == said["digest"]
        assert json_text(scenario)
    assert old.scenarios.search(limit=1).total == before + len(set(seeded) - set(frozen["presets"]))
