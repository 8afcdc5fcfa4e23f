"""Kendall's tau of the twin's order with published sweeps."""

from dataclasses import replace

import pytest
from scipy.stats import kendalltau

from twin.extras.evidence.made import LEAST, kendall_tau, ranking_table, rankings
from twin.lab.evidence.rows import load_published


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 2, 3], [4, 5, 6]), ([1, 2, 3, 4], [9, 1, 5, 5]), ([2, 2, 1, 7, 7], [1, 1, 3, 2, 0])],
)
def test_tau_is_that_of_scipy(one, other):
    assert kendall_tau(one, other) == pytest.approx(kendalltau(one, other).statistic)


def test_ties_alone_have_no_order():
    assert kendall_tau([1, 1, 1], [1, 2, 3]) is None


def test_the_published_figures_rank_themselves_in_their_own_order():
    published = load_published()
    found = rankings({row.id: row.value for row in published})
    assert found and all(r.tau == 1.0 and len(r.rows) >= LEAST and r.differ for r in found)
    reverse = rankings({row.id: -row.value for row in published})
    assert [r.tau for r in reverse] == [-1.0] * len(found)
    names = [name for r in found for name in r.rows]
    assert len(set(names)) == len(names)


def test_rows_of_two_models_are_no_sweep():
    sweep = rankings({row.id: row.value for row in load_published()})[0]
    rows = [row for row in load_published() if row.id in sweep.rows]
    assert len(rankings({row.id: row.value for row in rows}, rows)) == 1
    apart = [
        replace(row, scenario={**row.scenario, "deployment.model": f"model {k}"})
        for k, row in enumerate(rows)
    ]
    assert not rankings({row.id: row.value for row in rows}, apart)


def test_the_table_has_a_row_for_each_sweep():
    answers = [{"id": row.id, "twin": row.value} for row in load_published()]
    table = ranking_table(answers)
    assert {len(row) for row in table} == {4} and all(
        row["Kendall's tau"] == "+1.00" for row in table
    )
