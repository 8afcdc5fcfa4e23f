"""One request's stages and what ran inside them, against its stamps."""

import pytest

from tests.engine.small import run
from twin.lab.library import load_facts
from twin.lab.runs.watched import Source, request_work, stage_times


@pytest.fixture(scope="module", params=["disaggregated", "colocated"])
def source(request):
    answer = run({"deployment.mode": request.param})
    return Source(answer.scenario, answer.tables, load_facts())


@pytest.fixture(scope="module")
def row(source):
    done = source.tables["requests"].drop_nulls("finish_s")
    return done.row(done.height // 2, named=True)


def test_the_stages_of_a_request_add_up_to_its_whole_time(row):
    whole = row["finish_s"] - row["arrival_s"]
    assert sum(stage_times(row).values()) == pytest.approx(whole)
    assert sum(list(stage_times(row).values())[:-1]) == pytest.approx(
        row["first_token_s"] - row["arrival_s"]
    )


def test_a_request_without_stamps_has_no_stages(row):
    assert not stage_times(row | {name: None for name in row if name.endswith("_s")})


def test_what_ran_inside_fills_prefill_and_gives_every_token(source, row):
    seen = request_work(source, row)
    assert sum(took for _, took in seen.prefill) == pytest.approx(
        stage_times(row)["prefill"], rel=1e-6
    )
    decode_s = stage_times(row)["decode"]
    assert 0 <= seen.decode_wait_s < decode_s
    assert seen.iterations * seen.iteration_s == pytest.approx(decode_s - seen.decode_wait_s)
    assert 1 <= seen.iterations <= row["output_tokens"]
