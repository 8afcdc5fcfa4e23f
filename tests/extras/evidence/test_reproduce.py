"""A published row done again: its scenario runs."""

import pytest

from twin.extras.evidence.page import proof
from twin.lab.evidence.rows import load_published


@pytest.fixture(scope="module")
def rows():
    return load_published()


def test_every_row_of_a_pool_can_be_run_and_keeps_its_configuration(rows):
    for each in rows:
        replayed = proof.closed_loop_scenario(each)
        assert (replayed is None) == (each.measure.split(".")[0] not in ("decode", "prefill"))
        if replayed is not None:
            assert replayed.workload.arrivals == "closed_loop"
            for field in ("input_tokens", "output_tokens", "lengths"):
                stated = each.scenario.get(f"workload.{field}")
                assert stated is None or getattr(replayed.workload, field) == stated


def test_rows_of_one_configuration_share_one_run(rows):
    other = ("slides-tpot-64", "slides-tpot-128")
    of_288 = [r for r in rows if r.id.startswith("slides-") and r.id not in other]
    slides = [proof.closed_loop_scenario(r) for r in of_288]
    assert len(slides) > 1
    assert all(s == slides[0] for s in slides)


def test_a_colocated_row_fills_the_slots_of_its_colocated_instances():
    row = next(r for r in load_published() if r.id == "mlperf-gb200-server-tpot")
    replayed = proof.closed_loop_scenario(row)
    assert replayed is not None
    assert replayed.workload.concurrency == 143 * 8 * 9
