"""A library as a file: all of it comes back, what is damaged is named, nothing else is touched."""

import hashlib
import io
import json
import tarfile
import tracemalloc
from itertools import count

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from tests.draws import draws, some
from tests.lab import fake_engine
from tests.lab.conftest import adding_to
from tests.lab.test_store import ME, counts, trace
from twin.lab.library import ROOT
from twin.lab.machines import read_machine
from twin.lab.store import StoreError, open_store
from twin.lab.store import archive as archives
from twin.lab.store.archive import (
    KINDS,
    MEMBER,
    export_runs,
    read_archive,
    read_archive_file,
    write_archive,
)
from twin.lab.store.models import DONE, HoldingRow, ImportRow, ScenarioRow
from twin.lab.store.runs import SEALED, seal
from twin.scenario import Scenario, legacy_digests


def exported(store, runs=None) -> bytes:
    file = io.BytesIO()
    assert write_archive(store, file, runs).left_out == []
    return file.getvalue()


def taken(store, data: bytes):
    return read_archive(store, io.BytesIO(data), "library.tar")


def asked(**values) -> Scenario:
    return Scenario.model_validate(values)


def fill(store):
    """Put something of every kind into a store; a queued run is nothing that can be moved."""
    add_run = adding_to(store)
    workload = {"arrivals": "trace", "trace": {"digest": store.traces.save(trace())}}
    store.counts.save(counts())
    store.machines.save(read_machine(ROOT / "data" / "examples" / "two-boards.csv"))
    for scenario in (
        asked(name="plain", start="empty"),
        asked(workload=workload),
        asked(question="broken"),
    ):
        run = add_run(scenario, owner=ME)
        assert store.runs.finish(run, ME, fake_engine.answer(scenario), wall_s=1.5)
        if scenario.name == "plain":
            store.runs.publish(run)
    store.runs.fail(add_run(asked(seed=7), owner=ME), ME, "it broke")
    store.runs.request_stop(add_run(asked(seed=8)))
    add_run(asked(seed=9))
    store.for_visitor("ann").scenarios.save(asked(name="hers"))
    return store


@pytest.fixture
def filled(store):
    return fill(store)


@pytest.fixture(scope="module")
def library(new_store) -> bytes:
    """A filled store, exported: for tests of what is done with the file."""
    return exported(fill(new_store()))


@pytest.fixture(scope="module")
def without_runs(new_store):
    """A store that tests hand forged runs to, all of them in vain."""
    return new_store()


def members(data: bytes):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}


def test_everything_comes_back_and_a_second_time_nothing_is_new(filled, new_store):
    data, other = exported(filled), new_store()
    moved = taken(other, data)
    assert moved.left_out == [] and moved.present.total() == 0
    assert moved.new == {"scenario": 7, "import": 3, "facts": 1, "run": 5}
    assert other.find_damage() == []
    assert exported(other) == data
    run = next(row for row in other.runs.search().rows if row.published_s)
    assert filled.runs.get(run.id).summary == other.runs.get(run.id).summary
    assert other.runs.table(run.id, "requests").equals(filled.runs.table(run.id, "requests"))
    old = legacy_digests(asked(name="plain", start="empty"))[0]
    assert other.scenarios.get(old).digest == filled.scenarios.get(old).digest
    with other.database.read() as session:
        assert session.scalars(select(HoldingRow.visitor)).all() == ["ann"]
    again = taken(other, data)
    assert again.new.total() == 0 and again.present == moved.new
    assert exported(other) == data


@pytest.mark.parametrize("database", ["postgresql"], scope="session")
def test_it_moves_from_one_kind_of_database_to_the_other(filled, tmp_path, database):
    data = exported(filled)
    file = open_store(f"sqlite:///{tmp_path / 'twin.db'}")
    assert taken(file, data).left_out == []
    assert exported(file) == data
    file.close()


def test_every_member_is_named_by_its_bytes(library):
    for name, data in members(library).items():
        assert MEMBER.fullmatch(name)[3] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("cuts", some([4], 12))
def test_what_is_cut_off_anywhere_is_said_and_can_be_gone_on_with(library, new_store, cuts):
    data, other = library, new_store()
    for stop in range(700, len(data) - 1024, len(data) // cuts):
        assert "library.tar is cut off" in taken(other, data[:stop]).left_out[-1]
        assert other.find_damage() == []
    assert taken(other, data).left_out == []
    assert exported(other) == data


def test_any_flipped_byte_costs_only_what_it_is_part_of(library, new_store):
    data, other = library, new_store()

    @draws(30)
    @given(st.integers(0, len(data) - 1), st.integers(1, 255))
    def flip(place, bits):
        rotten = bytearray(data)
        rotten[place] ^= bits
        moved = taken(other, bytes(rotten))
        # A table, what names it and the runs of a scenario: never all of it.
        assert len(moved.left_out) <= 8
        assert moved.left_out or moved.present == whole.present

    taken(other, data)
    whole = taken(other, data)
    flip()
    assert other.find_damage() == []
    fresh, middle = new_store(), len(data) // 2
    assert taken(fresh, data[:middle] + b"rotten" + data[middle + 6 :]).left_out
    assert fresh.find_damage() == [] and fresh.scenarios.search().rows


def test_a_library_restores_a_file_that_rotted(filled, add_run):
    data = exported(filled)
    path = next(filled.artefacts.folder.glob("*/*.parquet"))
    path.write_bytes(b"rotten")
    assert filled.find_damage()
    assert taken(filled, data).left_out == []
    assert filled.find_damage() == []


def test_what_is_damaged_is_named_and_the_rest_is_written(filled, new_store):
    run = next(row for row in filled.runs.search().rows if row.published_s)
    sha256 = filled.runs.tables(run.id)["requests"].sha256
    filled.artefacts.path(sha256).unlink()
    file = io.BytesIO()
    moved = write_archive(filled, file)
    assert len(moved.left_out) == 1 and sha256 in moved.left_out[0]
    assert moved.new["run"] == 4
    with pytest.raises(StoreError, match=sha256):
        export_runs(filled, run.id)
    other = new_store()
    assert taken(other, file.getvalue()).left_out == []
    assert other.runs.get(run.id) is None and other.find_damage() == []


def test_one_run_brings_what_belongs_to_it_and_no_more(filled, new_store):
    run = next(row for row in filled.runs.search().rows if row.name == "untitled" and row.valid)
    other = new_store()
    assert taken(other, export_runs(filled, run.id)).new == {
        "scenario": 1, "import": 1, "facts": 1, "run": 1,
    }  # fmt: skip
    assert other.runs.get(run.id).result_digest == run.result_digest
    assert len(other.traces.value_of(other.scenarios.load(run.scenario))) == 3
    queued = next(row for row in filled.runs.search().rows if not row.ended)
    with pytest.raises(StoreError, match="export it when it has ended"):
        export_runs(filled, queued.id)


def test_a_visitor_exports_what_they_see_and_nobody_s_names(filled, new_store):
    ann, ben = filled.for_visitor("ann"), filled.for_visitor("ben")
    run = next(row for row in filled.runs.search().rows if not row.published_s)
    with pytest.raises(StoreError, match="no run here has the id"):
        export_runs(ben, run.id)
    other = new_store()
    assert taken(other, exported(ann)).new == {"scenario": 1}
    with other.database.read() as session:
        assert session.scalars(select(ScenarioRow.name)).all() == ["hers"]
        assert session.scalars(select(HoldingRow.visitor)).all() == []


def packed(*files):
    """A tar of (name, bytes) or of ready headers."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def row_of(kind, told):
    data = told if isinstance(told, bytes) else json.dumps(told).encode()
    return f"twin-1/{kind}/{hashlib.sha256(data).hexdigest()}.json", data


def link_to(target):
    info = tarfile.TarInfo(f"twin-1/run/{'0' * 64}.json")
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


HOSTILE = {
    "traversal": packed(("../../evil", b"x"), ("/etc/evil", b"x"), ("twin-1/../evil", b"x")),
    "symlink": packed((link_to("/etc/passwd"), b"")),
    "another table's name": packed((f"twin-1/table/{'0' * 64}.parquet", b"PAR1 not PAR1")),
    "no parquet": packed(row_of("table", b"PAR1 not PAR1")),
    "deep": packed(row_of("run", b"[" * 100_000)),
    "no table": packed(row_of("run", [1])),
    "nothing in it": packed(*(row_of(kind, {}) for kind in KINDS)),
    "null": packed(*(row_of(kind, b"null") for kind in KINDS)),
    "not utf-8": packed(row_of("facts", b"\xff")),
    "surrogate": packed(row_of("facts", {"digest": "0" * 64, "body": "\ud800", "created_s": 1})),
    "infinite": packed(row_of("facts", b'{"digest": "a", "body": "{}", "created_s": 1e999}')),
    "long number": packed(row_of("facts", b'{"created_s": ' + b"9" * 10_000 + b"}")),
    "bad scenario": packed(
        row_of("scenario", {
            "digest": hashlib.sha256(b"{}").hexdigest(), "body": "{}", "schema_version": 2,
            "parent": None, "preset": "", "created_s": 1, "published_s": None,
        })),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_sentences_and_touches_nothing(file_store, case, tmp_path):
    before = sorted(file_store.database.path.parent.rglob("*"))
    try:
        told = taken(file_store, HOSTILE[case]).left_out
    except StoreError as error:
        told = [str(error)]
    assert told and all("\n" not in sentence and len(sentence) < 400 for sentence in told)
    assert sorted(file_store.database.path.parent.rglob("*.parquet")) == [
        path for path in before if path.suffix == ".parquet"
    ]
    assert file_store.find_damage() == []


def test_any_value_in_any_column_is_stored_soundly_or_refused(file_store, library):
    whole, other = members(library), file_store
    rows = [
        (MEMBER.fullmatch(name)[2], json.loads(data))
        for name, data in whole.items()
        if name.endswith("json")
    ]
    taken(other, packed(*((name, data) for name, data in whole.items() if "/run/" not in name)))
    ids = (f"{number:022d}" for number in count())
    anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300)
    anything |= st.lists(anything, max_size=2) | st.dictionaries(st.text(), anything, max_size=2)

    @draws(20)
    @given(st.sampled_from(rows), st.data())
    def change(row, data):
        kind, told = row
        if kind == "run":
            told = told | {"id": next(ids)}
        column = data.draw(st.sampled_from(sorted(told)))
        taken(other, packed(row_of(kind, told | {column: data.draw(anything)})))

    change()
    assert other.find_damage() == []
    assert len(taken(other, packed(*whole.items())).left_out) == 0
    assert other.runs.search().rows and other.scenarios.search().rows


FORGED = {
    "figure": ({"summary": {"ttft_s_p50": {"a": 1}}}, "its summary has no figure for ttft_s_p50"),
    "text": ({"summary": {"ttft_s_p50": "<b>"}}, "its summary has no figure for ttft_s_p50"),
    "huge": ({"summary": {"requests": 10**300}}, "its summary has no figure for requests"),
    "nan": ({"summary": {"x": float("nan")}}, "its summary has no figure for x"),
    "check": ({"checks": [{"id": 7}]}, "its checks has a check without id, statement"),
    "note": ({"notes": [{}]}, "its notes has a note that is no text"),
    "year 3170843": ({"queued_s": 1e14}, "its queued_s is no time from 0 to 9e+09 s"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_run_with_a_sound_seal_is_refused_by_what_is_wrong(library, without_runs, case):
    changes, said = FORGED[case]
    whole, other = members(library), without_runs
    rows = [json.loads(data) for name, data in whole.items() if "/run/" in name]
    forged = next(row for row in rows if row["state"] == DONE) | changes
    if case != "nan":  # no seal covers what is no number
        forged["seal"] = seal({key: forged[key] for key in SEALED}, forged["files"])
    kept = [(name, data) for name, data in whole.items() if "/run/" not in name]
    told = taken(other, packed(*kept, row_of("run", forged)))
    assert len(told.left_out) == 1
    assert told.left_out[0].startswith(f"the run {forged['id']} is left out: {said}")
    assert other.runs.search().total == 0 and other.find_damage() == []


@pytest.mark.parametrize("about", [{}, {"npus": {}}, {"npus": "64"}])
def test_a_forged_import_with_a_sound_seal_is_refused(library, new_store, about):
    whole, other = members(library), new_store()
    rows = [json.loads(data) for name, data in whole.items() if "/import/" in name]
    told = next(row for row in rows if row["kind"] == "machine")
    told["about"] = about and {**told["about"], **about}
    sealed = {key: told[key] for key in ImportRow.SEALED}
    told["seal"] = seal(sealed, told["files"])
    kept = [(name, data) for name, data in whole.items() if "/table/" in name]
    left_out = taken(other, packed(*kept, row_of("import", told))).left_out
    assert len(left_out) == 1 and "the machine" in left_out[0]
    assert other.machines.search().total == 0


def test_a_file_with_holes_is_refused_before_they_are_read(file_store, tmp_path, monkeypatch):
    path, info = tmp_path / "holes.tar", tarfile.TarInfo(f"twin-1/table/{'0' * 64}.parquet")
    info.size = 1 << 30
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT) + b"PAR1")
        file.truncate(512 + info.size + 1024)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("no holes on this file system")
    monkeypatch.setattr(file_store.artefacts, "save_bytes", None)
    with pytest.raises(StoreError, match="says 1,074 MB and takes 0.00 MB on the disk"):
        read_archive_file(file_store, path)


def test_what_is_no_table_and_what_is_too_large_is_not_read(file_store, monkeypatch):
    """Of a large member the first piece at most is read."""

    class Counted(io.BytesIO):
        read_bytes = 0

        def read(self, most=-1):
            piece = super().read(most)
            self.read_bytes += len(piece)
            return piece

    monkeypatch.setattr(archives, "TABLE_BYTES_MAX", 20 << 20)
    name = f"twin-1/table/{'0' * 64}.parquet"
    file = Counted(packed((name, bytes(19 << 20)), (name, b"PAR1" + bytes(20 << 20))))
    left_out = read_archive(file_store, file, "large.tar").left_out
    assert "is no table in Parquet" in left_out[0] and "larger than any part" in left_out[1]
    assert file.read_bytes < 2 << 20


def test_a_file_of_something_else_is_one_sentence(file_store):
    for data in (b"", b"x" * 5000, bytes(1024), packed(("README", b"hello"))):
        with pytest.raises(StoreError, match="is no library|damaged|cut off"):
            moved = taken(file_store, data)
            raise StoreError(moved.left_out[0])


def test_an_archive_of_a_newer_twin_is_refused(file_store):
    name, data = row_of("run", {})
    with pytest.raises(StoreError, match="written by a newer twin"):
        taken(file_store, packed((name.replace("twin-1", "twin-2"), data)))


def test_memory_does_not_grow_with_the_tables(filled, new_store, add_run):
    noise = pl.DataFrame({"x": range(1_000_000)}).with_columns(pl.col("x").hash(1))
    filled.artefacts.save(noise)
    result = fake_engine.answer(asked(name="large"))
    run = add_run(asked(name="large"), owner=ME)
    result.tables["noise"] = noise
    assert filled.runs.finish(run, ME, result, wall_s=1.0)
    data, other = io.BytesIO(export_runs(filled, run)), new_store()
    assert data.getbuffer().nbytes > 6e6
    tracemalloc.start()
    read_archive(other, data, "large.tar")
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_the_command_line_moves_a_library(twin, tmp_path, monkeypatch):
    twin("library", "export", str(tmp_path / "empty.tar"))
    archive = tmp_path / "one.tar"
    assert twin("run", "quickstart", "--set", "horizon_s=2", "--set", "warmup_s=1").returncode == 0
    told = twin("library", "export", str(archive))
    assert told.returncode == 0 and b"1 run, 1 scenario" in told.stdout
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'other' / 'twin.db'}")
    told = twin("library", "import", str(archive), "--json")
    assert json.loads(told.stdout) == {
        "new": {"scenario": 1, "facts": 1, "run": 1}, "here": {}, "left_out": [],
    }  # fmt: skip
    archive.write_bytes(archive.read_bytes()[:-2000])
    told = twin("library", "import", str(archive))
    assert told.returncode == 1 and b"cut off" in told.stdout and b"were here" in told.stdout
    told = twin("library", "import", str(tmp_path / "nowhere"))
    assert told.returncode == 2 and b"cannot be read" in told.stderr
