"""Imported expert counts: read as they are, or refused with a sentence; stored by digest."""

import gzip
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twin.__main__ import app
from twin.extras.count_import.reader import CountsError, read_counts
from twin.lab.kinds import COUNTS as KIND
from twin.lab.kinds import CountsTable
from twin.lab.library import ROOT, presets
from twin.lab.runs.answer import answer_scenario
from twin.lab.runs.apart import read_in_process
from twin.lab.traces.source import Limits
from twin.scenario import with_overrides

PATTERNS = ROOT.parent / "shared" / "traces" / "omni-placement"
JULY = PATTERNS / (
    "placement_pattern_20250724_142738_58_redundant_layers_58_layers_16_ranks_"
    "epmaxdeploy_200_prefill.npy.gz"
)
COUNTS = np.array([[5, 0, 3, 2], [1, 1, 1, 9]], np.int64)


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


STEPS = np.stack([COUNTS - 1 * (COUNTS > 0), 1 * (COUNTS > 0)])
AS_JSON = json.dumps({"rank": 0, "logical_count": STEPS.tolist()}).encode()
CSV = b"Layer,expert,tokens\n3,0,5\n3,2,3\n3,3,2\n\n4,0,1\n4,1,1\n4,2,1\n4,3,4\n4,3,5\n"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (npy(COUNTS), "npy"),
        (npy(np.asfortranarray(COUNTS.astype(np.float32))), "npy"),
        (gzip.compress(npy(STEPS), mtime=0), "npy"),
        (npz(logical_count=STEPS, other=np.ones(3)), "npz"),
        (AS_JSON, "json"),
        (gzip.compress(json.dumps(COUNTS.tolist()).encode(), mtime=0), "json"),
        (b"\xef\xbb\xbf" + CSV, "csv"),
        (gzip.compress(CSV, mtime=0), "csv"),
    ],
)
def test_every_format_gives_the_same_counts(data, kind, tmp_path):
    got = read_counts(data, "a")
    assert got.format == kind and got.counts.dtype == np.float64
    assert got.counts.tolist() == COUNTS.tolist()
    assert got.digest == CountsTable("", "", COUNTS.astype(np.float64)).digest
    (tmp_path / "a.bin").write_bytes(data)
    assert read_counts(tmp_path / "a.bin").digest == got.digest


def test_dense_layers_at_the_beginning_are_left_out_and_said():
    got = read_counts(npy(np.concatenate((np.zeros((3, 4), np.int64), COUNTS))))
    assert got.counts.tolist() == COUNTS.tolist() and "first 3 layers" in got.note


def test_a_placement_becomes_the_least_loads_that_explain_it():
    ranks = np.zeros((4, 1, 8), np.int32)
    ranks[np.arange(8) // 2, 0, np.arange(8)] = 1
    ranks[:, 0, 0] = 1  # 4 copies of expert 0 in 11 slots
    got = read_counts(npy(ranks), "pattern.npy")
    assert got.format == "omni placement" and "least loads" in got.note
    assert got.counts[0, 0] == pytest.approx(3 * 8 / 11)
    assert got.counts.mean() == pytest.approx(1.0) and np.ptp(got.counts[0, 1:]) == 0


def evil():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    return file.getvalue()


def lying():
    good = npy(np.ones((2, 4)))
    return good.replace(b"(2, 4)", b"(9, 9)")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            pickle.dumps({"logical_count": [1]}),
            "PyTorch file.*can run code.*save its logical_count",
        ),
        (evil(), "PyTorch file"),
        (npy(np.array([{}], object), allow_pickle=True), "no sound array of numbers"),
        (npy(np.array([["a"]])), "holds <U1 and not numbers"),
        (lying(), "no sound array of numbers: save it again"),
        (npy(np.ones((2, 4)))[:-8], "no sound array"),
        (b"\x93NUMPY\x01\x00\x05\x00{abc\n", "no sound array"),
        (npy(np.ones(4)), "an array of 4: give .layers, experts. or"),
        (npy(np.ones((600, 4))), "600 layers x 4 experts: at most 512 x 4096"),
        (npy(-COUNTS), "holds -5 at .0, 0.: counts are 0 or more"),
        (npy(np.array([[1.0, np.nan]])), "holds nan at .0, 1."),
        (npy(np.zeros((2, 4))), "counts nothing: every number is 0"),
        (npy(np.array([[1, 2], [0, 0], [1, 1]])), "counts nothing in layer 1"),
        (npy(np.stack([COUNTS > 0 for _ in range(1)]) | True), "places every expert once"),
        (npz(a=COUNTS, b=COUNTS), "2 arrays, none named logical_count"),
        (b"PK\x03\x04 what", "no sound array"),
        (b'{"physical_count": []}', "no logical_count: give it"),
        (b"[[1, 2], [3]]", "rows of different lengths"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[[1, 2]", "line 1 is not JSON: .* at column 8; logical_count .layers"),
        (b"layer,count\n0,1\n", "line 1 has no column expert: begin with"),
        (
            b"layer,expert,count\n0,1,2\n0,x,2\n",
            "line 3: expert = 'x' must be a whole number below 4096",
        ),
        (b"layer,expert,count\n0,-1,2\n", "line 2: expert = '-1' must be a whole number"),
        (b"layer,expert,count\n0,1,nan\n", "line 2: count = 'nan' must be a number from 0 on"),
        (b"layer,expert,count\n0,1,2\n2,1,2\n", "no row of layer 1"),
        (b"layer,expert,count\n", "holds a header and no row"),
        (b"", "it is empty"),
        (b"\n" * 1_000_000, "it is empty"),
        (b"\xff\xfe\x00", "line 1 is not UTF-8 text"),
        (gzip.compress(npy(COUNTS), mtime=0)[:-9], "gzip"),
    ],
)
def test_faulty_files_are_refused_with_one_sentence(data, words):
    with pytest.raises(CountsError, match=words) as caught:
        read_counts(data, "it")
    assert str(caught.value).startswith("it") and "\n" not in str(caught.value)


def test_limits_hold_before_anything_is_unpacked():
    small = Limits(packed_bytes=4096, unpacked_bytes=4096, rows=10)
    packed = gzip.compress(b"1" * 10_000)
    for data in (npy(np.ones((50, 50))), npz(a=np.ones((50, 50))), packed):
        with pytest.raises(CountsError, match="4096|0 MB"):
            read_counts(data, "it", small)


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"["]))
def test_no_bytes_crash_the_reader(data, head):
    try:
        read_counts(head + data, "it")
    except CountsError as error:
        assert "\n" not in str(error)


@pytest.mark.skipif(not JULY.exists(), reason="NO PLACEMENT PATTERNS beside the project")
def test_real_patterns():
    got = read_counts(JULY)
    hottest = got.counts.max(axis=1) / got.counts.mean(axis=1)
    assert got.counts.shape == (58, 256)
    assert np.median(hottest) == pytest.approx(1.88, abs=0.03)  # 3 copies in 272 slots
    assert hottest.max() == pytest.approx(6.59, abs=0.03) and hottest[:5].max() < 2.0
    once = next(PATTERNS.glob("*rearrange*16_ranks*"))
    with pytest.raises(CountsError, match="places every expert once"):
        read_counts(once)


def test_a_process_apart_reads_the_same():
    assert read_in_process(KIND, AS_JSON, "c.json").digest == read_counts(AS_JSON, "c.json").digest


def test_counts_are_imported_by_command_and_asked_for_as_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")
    file = tmp_path / "mine.npy"
    np.save(file, np.tile(np.arange(1.0, 257.0), (58, 1)))
    told = CliRunner().invoke(app, ["import-counts", str(file), "--json"])
    digest = json.loads(told.output)["counts"]
    asked = with_overrides(
        presets()[0].scenario,
        {"experts.popularity": "imported", "experts.counts.digest": digest, "horizon_s": 4.0,
         "warmup_s": 1.0},
    )  # fmt: skip
    kept = answer_scenario(asked, None, lambda _share, _live: True)
    unkept = answer_scenario(asked, None, lambda _share, _live: True, keep=False)
    assert kept["digest"] == unkept["digest"]
