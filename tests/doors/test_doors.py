"""Whatever is handed in, a reader answers with a value or one sentence, within its limits."""

import pytest

from tests.doors.hostile import MEGABYTES, every
from tests.doors.mutants import mutant
from tests.doors.readers import READERS, sound
from tests.doors.sandbox import Sandbox
from tests.draws import some

CASES = list(every())
BLOCKS = [range(first, first + 100) for first in range(0, 2000, 100)]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as process:
        yield process


@pytest.fixture(scope="module")
def samples():
    return sound()


@pytest.mark.parametrize("reader", READERS)
def test_sound_files_are_read(sandbox, samples, reader):
    for _, data in samples[reader]:
        outcome = sandbox.read(reader, data)
        assert outcome.kind == "value" or reader == "query", outcome.said


@pytest.mark.parametrize("numbers", some([range(3)], *BLOCKS), ids=str)
@pytest.mark.parametrize("reader", READERS)
def test_a_changed_file_is_a_value_or_one_sentence(sandbox, samples, reader, numbers):
    for number in numbers:
        outcome = sandbox.read(reader, mutant(samples[reader], number))
        assert outcome.proper, (number, outcome.kind, outcome.said)
        assert outcome.grown_mb < 3 * MEGABYTES, (number, outcome)


@pytest.mark.parametrize("case", some(CASES[::37], *CASES), ids=lambda c: f"{c.reader}: {c.what}")
def test_a_hostile_input_is_one_sentence_within_its_memory(sandbox, case):
    outcome = sandbox.read(case.reader, case.make())
    assert outcome.proper, (outcome.kind, outcome.said)
    assert outcome.grown_mb < MEGABYTES, outcome
