"""Files that people name: whatever is wrong with one, the answer is one sentence that names it."""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import tracemalloc

import pytest

from tests.doors.on_disk import brought
from twin.facts import FactError
from twin.hardware.chip import load_chip
from twin.lab.ask import settings_from
from twin.lab.files import NotWritten, open_atomic, write_text
from twin.lab.library import (
    ROOT,
    SCENARIO_BYTES_MAX,
    load_facts,
    load_scenario_file,
    scenario_from_toml,
)
from twin.lab.traces.reader import read_trace
from twin.lab.traces.source import Limits, TraceError
from twin.scenario import Scenario, SpecError, with_overrides

READERS = {
    "scenario": (load_scenario_file, SpecError),
    "trace": (read_trace, TraceError),
}
for extra in brought():
    READERS |= getattr(extra, "FILES", {})
ODD_NAMES = ["nowhere", "nul\0byte", "two\nlines"]


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_file_that_is_not_there_is_one_sentence(tmp_path, kind, name):
    read, error = READERS[kind]
    with pytest.raises(error) as refused:
        read(tmp_path / name)
    assert name[:3] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [kind for kind in READERS if kind != "trace"])
def test_a_folder_in_place_of_a_file_is_one_sentence(tmp_path, kind):
    read, error = READERS[kind]
    with pytest.raises(error, match="cannot be read"):
        read(tmp_path)


AS_NOBODY = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.lab.test_files import READERS
for read, error in READERS.values():  # what they import is not theirs to read afterwards
    try:
        read(Path(sys.argv[2]))
    except error:
        pass
os.setuid(65534)
for kind, (read, error) in READERS.items():
    try:
        read(Path(sys.argv[2]))
    except error as refused:
        assert "Permission denied" in str(refused), (kind, refused)
    else:
        raise AssertionError(kind)
"""


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can be nobody")
def test_a_file_of_somebody_else_is_one_sentence(tmp_path):
    path = tmp_path / "mine"
    path.write_text("{}")
    path.chmod(0o600)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    command = [sys.executable, "-c", AS_NOBODY, str(ROOT), str(path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_time_beyond_all_numbers_is_one_sentence():
    row = {"timestamp": 10**400, "input_length": 1, "output_length": 1, "hash_ids": []}
    with pytest.raises(TraceError, match="timestamp = 1000.* must be a time"):
        read_trace(json.dumps(row).encode())


@pytest.mark.parametrize("size", [0, -5, 65_537, 10**23])
def test_a_block_size_that_cannot_be_is_one_sentence(size):
    row = {"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [1]}
    with pytest.raises(TraceError, match="must be from 1 to 65,536"):
        read_trace(json.dumps(row).encode(), block_tokens=size)


def packed(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("squeeze", [bytes, gzip.compress], ids=["tar", "tar.gz"])
def test_what_an_archive_holds_is_counted_once(squeeze):
    row = json.dumps({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]})
    data = (row + "\n").encode() * 20_000
    limits = Limits(packed_bytes=16 << 20, unpacked_bytes=int(1.2 * len(data)), rows=20_000)
    assert len(read_trace(squeeze(packed({"t.jsonl": data})), limits=limits)) == 20_000
    with pytest.raises(TraceError, match="unpacks to more"):
        read_trace(squeeze(packed({"a": data, "b": data})), limits=limits)


def test_many_members_of_a_gzip_file_take_time_in_proportion():
    row = json.dumps({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]})
    member = gzip.compress((row + "\n").encode(), 1) + b"\0" * 3000

    def cpu_s(members):
        data = member * members
        begun = time.process_time()
        assert len(read_trace(data)) == members
        return time.process_time() - begun

    cpu_s(10)
    assert cpu_s(2000) < 25 * max(cpu_s(200), 0.02)


def test_a_folder_is_called_by_its_name_even_from_within(tmp_path, monkeypatch):
    folder = tmp_path / "recorded"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(TraceError, match="recorded holds no file"):
        read_trace(".")


SLIP = b'[dies_per_npu]\nvalue = %b\nunit = "dies"\nsource = "x"\nmark = "a"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[hbm_bandwidth\n", "mine.toml is not valid TOML"),
        (b"\xff", "mine.toml is not text in UTF-8"),
        (b"[dies_per_npu]\nvalue = 2\n", "mine.dies_per_npu has no unit"),
        (SLIP % b'"two"', "mine.dies_per_npu is 'two' in dies: it must be a finite number"),
        (SLIP % b"nan", "mine.dies_per_npu is 'nan' in dies: it must be a finite number"),
    ],
)
def test_a_chip_of_ones_own_with_a_slip_in_it_is_one_sentence(tmp_path, text, said):
    chips = tmp_path / "chips"
    chips.mkdir()
    (chips / "mine.toml").write_bytes(text)
    with pytest.raises(FactError, match=said) as refused:
        load_chip(load_facts(tmp_path), "mine")
    assert "\n" not in str(refused.value)


def test_half_a_file_is_no_file(tmp_path):
    path = tmp_path / "run.json.gz"
    path.write_text("an earlier one")
    with pytest.raises(NotWritten, match=r"run\.json\.gz cannot be written: No space"), \
            open_atomic(path) as file:  # fmt: skip
        file.write(b"x" * 100_000)
        raise OSError(28, "No space left on device")
    assert path.read_text() == "an earlier one"
    write_text(path, "x")
    assert [one.name for one in tmp_path.iterdir()] == ["run.json.gz"]
    with pytest.raises(NotWritten, match="cannot be written: Not a directory"):
        write_text(path / "deeper.json", "x")
    with pytest.raises(NotWritten, match="no file is called so"):
        write_text(tmp_path / "a\0b", "x")


LONG_KEYS = (
    ".".join(["a"] * 24_000) + " = 1",
    " . ".join(["'a'"] * 24_000) + " = 1",
    "[" + ".".join(['"a b"'] * 24_000) + "]",
    "x = {" + ".".join(["a"] * 24_000) + " = 1}",
)


@pytest.mark.parametrize("text", LONG_KEYS, ids=["bare", "quoted", "table", "inline"])
def test_a_key_of_many_parts_is_refused_before_it_takes_memory(text):
    tracemalloc.start()
    with pytest.raises(SpecError, match="a key of more than 16 parts"):
        scenario_from_toml(text.encode())
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()
    with pytest.raises(SpecError, match=r"x|seed"):
        with_overrides(Scenario(), settings_from([f"seed=1\n{text}"]))


@pytest.mark.parametrize("piece", ["a", "'", '"', "a.", "a ", "''", "'a'.", "[", "\n"])
def test_no_text_takes_long_to_look_through_for_keys(piece):
    text = piece * (SCENARIO_BYTES_MAX // len(piece) - 2) + "\n!"
    start_s = time.process_time()
    with pytest.raises(SpecError):
        scenario_from_toml(text.encode())
    assert time.process_time() - start_s < 5.0


def test_a_text_with_dots_is_no_long_key():
    question = "What of 1.2.3.4.5.6.7.8.9 ... and a.b.c.d.e.f.g?"
    assert scenario_from_toml(f'question = "{question}"'.encode()).question == question


def test_an_integer_of_100_000_digits_is_one_sentence():
    with pytest.raises(SpecError, match="a number of too many digits") as refused:
        scenario_from_toml(b"seed = 0x" + b"f" * 100_000)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("data", [b"", b" \r\n\t\n"])
def test_an_empty_file_is_no_scenario_and_says_so(data):
    with pytest.raises(SpecError, match=r"^mine\.toml is empty, so it is no scenario$"):
        scenario_from_toml(data, "mine.toml")
