"""The study of allocation: laws, and cases that can be told by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.extras.allocation.study import allocate, allocated_shares, mix_of_mean
from twin.hardware.chip import HardwareError
from twin.lab.library import load_facts
from twin.scenario import Scenario
from twin.ui.pages import PAGES

SIZES = [1, 2, 4, 8, 16, 32, 64, 128]
QUICK = 800


@pytest.mark.parametrize(
    ("npus", "block", "share"), [(8, 5, 5 / 8), (384, 16, 1.0), (224, 48, 192 / 224), (7, 7, 1.0)]
)
def test_blocks_of_one_size_fill_whole_rows_of_them(npus, block, share):
    found = allocate(npus, [(block, 1.0)], 4 * npus, blocks=QUICK)
    assert found.mean == pytest.approx(share, rel=1e-12)
    assert found.taken.max() == pytest.approx(share, rel=1e-12)


def test_a_fleet_of_one_supernode_holds_what_fits_it():
    found = allocate(3, [(1, 1.0)], 1, blocks=QUICK)
    assert found.supernodes == 1 and found.mean == pytest.approx(1.0)


@draws(15)
@given(st.integers(128, 900), st.floats(1.5, 100.0), st.integers(0, 10**6))
def test_never_more_than_all_is_taken_and_time_goes_on(npus, mean, seed):
    found = allocate(npus, mix_of_mean(SIZES, mean), 1536, seed, 300)
    assert (found.taken > 0.0).all() and (found.taken <= 1.0).all()
    assert 0.0 < found.mean <= 1.0
    assert (np.diff(found.times) >= 0.0).all()
    whole = found.taken * found.supernodes * npus
    np.testing.assert_allclose(whole, np.round(whole), atol=1e-6)


@pytest.mark.parametrize("mean", [5.0, 10.08, 30.0])
def test_a_larger_supernode_never_fills_worse_on_average(mean):
    mix = mix_of_mean(SIZES, mean)
    filled = [
        np.mean([allocate(npus, mix, 1536, seed, QUICK).mean for seed in range(6)])
        for npus in (128, 192, 384, 768, 1536)
    ]
    assert filled == sorted(filled) and filled[-1] > filled[0] + 0.1


@draws(30)
@given(st.floats(1.01, 127.0))
def test_a_mix_has_the_mean_that_was_asked(mean):
    mix = mix_of_mean(SIZES, mean)
    assert sum(weight for _, weight in mix) == pytest.approx(1.0)
    assert sum(size * weight for size, weight in mix) == pytest.approx(mean, rel=1e-6)


def test_what_cannot_be_is_one_sentence():
    with pytest.raises(HardwareError, match="a block of 160 NPUs does not fit a supernode of 128"):
        allocate(128, [(160, 1.0)], 1536)
    for mean in (0.5, 128.0, float("nan")):
        with pytest.raises(HardwareError, match="have no mean of"):
            mix_of_mean(SIZES, mean)


def test_the_study_answers_for_every_size_and_says_what_does_not_fit():
    shares = allocated_shares(load_facts(), (128, 384), (10.08,), Scenario())
    assert shares["instances of this deployment"][128] is None  # decode takes 160
    assert shares["blocks of 10.08 NPUs"][384] > shares["blocks of 10.08 NPUs"][128]
    assert 0.5 < shares["instances of this deployment"][384] <= 1.0


def test_how_full_blocks_keep_supernodes_is_a_table_or_one_object(twin):
    words = ["allocate", "--supernode", "128", "--supernode", "384", "--block", "10.08"]
    own = ["--instances-of", "quickstart"]
    (name, other) = shares = json.loads(twin(*words, *own, "--json").stdout)["allocated"]
    assert 0.5 < shares[name]["128"] < shares[name]["384"] < 1.0
    assert shares[other]["128"] is None
    assert b"no room" in twin(*words, *own).stdout


def test_a_mean_that_no_blocks_have_is_one_sentence(twin):
    done = twin("allocate", "--block", "500")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"have no mean of 500" in done.stderr


def test_how_full_blocks_keep_supernodes_is_drawn_when_asked(app):
    page = app.switch_page(PAGES["deployment"].script).run()
    page.get_by_key("deployment-group").set_value("Pools")
    page.run()
    before = len(page.get("plotly_chart"))
    switch = page.get_by_key("allocation-study")
    assert switch.label == "How full do instances of these sizes keep supernodes?"
    switch.set_value(True)
    page.run()
    assert not page.exception
    assert len(page.get("plotly_chart")) == before + 1
    assert any("Figure 24" in c.value for c in page.caption)
