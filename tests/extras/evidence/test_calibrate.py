"""Constants are found again from points; what a row alone carries is lost without it."""

import json
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

from twin.extras.evidence import calibrate
from twin.extras.evidence.calibrate import (
    CALIBRATION,
    CONSTANTS,
    PointsError,
    _refit,
    check_options,
    cross_validate,
    fit_points,
    read_points,
    with_constants,
    write_private_fit,
)
from twin.extras.evidence.made import load_made
from twin.facts import FactError
from twin.lab.evidence.judge import answer_row
from twin.lab.evidence.rows import load_published
from twin.lab.files import NotWritten
from twin.lab.library import load_facts

HEAD = "quantity,value,ep,tokens,deployment.mode,deployment.decode.batch_per_npu\n"
COLLECTIVES = [f"{q}_us,1,{ep},{tokens},," for q, ep, tokens in (
    ("dispatch", 8, 128), ("dispatch", 256, 128), ("dispatch", 64, 16), ("combine", 8, 128),
    ("combine", 256, 128), ("combine", 64, 16))]  # fmt: skip
DECODE = [f"decode_tpot_ms,1,,,decode_only,{batch}" for batch in (8, 96)]
SLOPE = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
TRUTH = np.array([0.8, 0.4])
START = np.array([0.5, 0.5])


@pytest.fixture(scope="module")
def facts():
    return load_facts()


@pytest.fixture
def points(tmp_path):
    def write(lines, head=HEAD):
        path = tmp_path / "points.csv"
        path.write_text(head + "".join(line + "\n" for line in lines), "utf-8")
        return path

    return write


def measured(points, lines, facts):
    """The points with the values that these facts give them."""
    rows = read_points(points(lines), facts)
    cells = [line.split(",") for line in lines]
    return points([
        ",".join([c[0], f"{answer_row(row, facts):.7g}", *c[2:]])
        for c, row in zip(cells, rows, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "lines", "tolerance"),
    [
        ({"comm_fixed": 22.0, "barrier_round": 5.5}, COLLECTIVES, 0.05),
        ({"comm_fixed": 11.0, "barrier_round": 2.0}, COLLECTIVES, 0.05),
        ({"kernel_gap": 1.5}, DECODE, 0.15),
    ],
)
def test_constants_are_recovered_from_points_of_a_twin_that_has_them(
    points, facts, changed, lines, tolerance
):
    path = measured(points, lines, with_constants(facts, changed))
    some = tuple(c for c in CONSTANTS if c.name in changed)
    found = fit_points(path, facts, some)
    assert found.values == pytest.approx(changed, rel=tolerance)
    assert found.error_mean < 0.005


def test_all_constants_together_still_explain_the_points_and_the_rest_stays(points, facts):
    changed = with_constants(facts, {"comm_fixed": 20.0, "barrier_round": 5.0})
    found = fit_points(measured(points, COLLECTIVES, changed), facts)
    assert found.error_mean < 0.005
    assert found.values["comm_fixed"] == pytest.approx(20.0, rel=0.1)
    assert found.values["barrier_round"] == pytest.approx(5.0, rel=0.1)
    assert "kernel_gap" in found.untouched
    assert not {"comm_fixed", "barrier_round"} & set(found.untouched)
    for name in found.untouched:
        assert found.values[name] == facts[f"calibration.{name}"].value


def test_points_of_the_twin_itself_move_nothing(points, facts):
    found = fit_points(measured(points, COLLECTIVES, facts), facts)
    for name, value in found.values.items():
        assert value == pytest.approx(facts[f"calibration.{name}"].value, rel=2e-3)


def test_a_private_copy_is_laid_over_the_facts_and_nothing_else_changes(
    points, facts, tmp_path, monkeypatch
):
    lines = measured(points, COLLECTIVES, with_constants(facts, {"comm_fixed": 22.0}))
    found = fit_points(lines, facts, [c for c in CONSTANTS if c.name == "comm_fixed"])
    before = CALIBRATION.read_bytes()
    write_private_fit(found, tmp_path / "mine.toml")
    monkeypatch.setenv("TWIN_CALIBRATION", str(tmp_path / "mine.toml"))
    own = load_facts()
    assert {name for name in facts if own[name] != facts[name]} == {"calibration.comm_fixed"}
    assert own["calibration.comm_fixed"].value == found.values["comm_fixed"]
    assert "6 points of points.csv" in own["calibration.comm_fixed"].source
    assert own.digest != facts.digest
    assert CALIBRATION.read_bytes() == before
    monkeypatch.delenv("TWIN_CALIBRATION")
    assert load_facts() == facts


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("speed,1,,,,", "quantity 'speed' must be one of decode_tpot_ms"),
        ("dispatch_us,fast,8,128,,", "value 'fast' must be a number above 0"),
        ("dispatch_us,-3,8,128,,", "value '-3' must be a number above 0"),
        ("dispatch_us,nan,8,128,,", "value 'nan' must be a number above 0"),
        ("dispatch_us,100,,128,,", "ep '' must be a number above 0"),
        ("dispatch_us,100,1000,128,,", "ep must be a whole number from 2 to the 768 dies"),
        ("dispatch_us,100,8,0,,", "tokens '0' must be a number above 0"),
        ("decode_tpot_ms,50,,,decode_only,-1", "deployment.decode.batch_per_npu = -1"),
        ("decode_tpot_ms,50,,,prefill_only,", "'prefill_only' has no decode pool"),
        ("decode_tpot_ms,50", "a cell, if an empty one, for each column"),
        ("decode_tpot_ms,50,,,,,,", "a cell, if an empty one, for each column"),
    ],
)
def test_a_bad_row_is_named_by_its_line(points, facts, line, said):
    path = points([COLLECTIVES[0], "", line])
    with pytest.raises(PointsError, match=f"^points.csv, line 4: .*{said}") as caught:
        read_points(path, facts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "row", "said"),
    [
        ("value\n", "1", "line 1: no column is called quantity"),
        ("quantity,value,speed\n", "decode_tpot_ms,1,2", "line 1: column 'speed' must be one of"),
        ("quantity,value,value\n", "decode_tpot_ms,1,2", "line 1: two columns are called 'value'"),
        ("", "", "points.csv is empty"),
        ("quantity,value\n", "", "holds no point"),
        ('quantity,value\n"decode_tpot_ms"x,1\n', "", "line 2: .*must be comma-separated"),
        ("quantity,value,preset\n", "decode_tpot_ms,1,papr-decode-15ms", "line 2: .* perhaps"),
        ("quantity,value,workload.lengths\n", "decode_tpot_ms,1,sharegpt", "line 2: .* be fixed"),
    ],
)
def test_a_bad_file_is_one_sentence(points, facts, head, row, said):
    with pytest.raises(PointsError, match=said):
        read_points(points([row], head), facts)


def test_a_point_that_does_not_fit_the_machine_is_named_by_its_line(points, facts):
    path = points(["decode_tpot_ms,50,400000"], "quantity,value,workload.input_tokens\n")
    path.write_text(path.read_text("utf-8").replace("400000", "1000000"), "utf-8")
    with pytest.raises(PointsError, match=r"^points.csv, line 2: decode_tpot_ms: \w"):
        fit_points(path, facts, CONSTANTS[:1])


def test_more_points_than_a_fit_takes_are_refused(points, facts):
    with pytest.raises(PointsError, match=r"line 130: more than 128 points"):
        read_points(points([COLLECTIVES[0]] * 129), facts)


def test_a_private_fit_never_lands_in_data(points, tmp_path):
    with pytest.raises(PointsError, match="--out may not be"):
        check_options(tmp_path / "points.csv", CALIBRATION, False)
    with pytest.raises(PointsError, match="--write is for published rows"):
        check_options(tmp_path / "points.csv", None, True)
    with pytest.raises(PointsError, match="--points"):
        check_options(None, tmp_path / "mine.toml", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("[comm_fixed", "not valid TOML"),
        ("[warp]\nvalue = 1", "warp is no constant: take some of comm_fixed"),
        ('[comm_fixed]\nvalue = "x"', "comm_fixed has no value that is a number"),
        ("comm_fixed = 3", "comm_fixed has no value that is a number"),
        (
            '[comm_fixed]\nvalue = 1e9\nunit = "us"',
            r"comm_fixed must be [\d.]+ to [\d.]+ in unit 'us'",
        ),
        (
            '[comm_fixed]\nvalue = 12\nunit = "ms"',
            r"comm_fixed must be [\d.]+ to [\d.]+ in unit 'us'",
        ),
        ('[comm_fixed]\nvalue = 12\nunit = "us"\nmark = "f"', "comm_fixed has no source"),
    ],
)
def test_a_broken_private_copy_is_one_sentence(tmp_path, monkeypatch, text, said):
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text, "utf-8")
    monkeypatch.setenv("TWIN_CALIBRATION", str(path))
    with pytest.raises(FactError, match=said):
        load_facts()


def test_the_command_line_fits_keeps_and_uses_a_private_copy(
    points, facts, tmp_path, twin, monkeypatch
):
    def said(*words):
        done = twin(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    asked = ["predict", "paper-decode-15ms", "--json"]
    path = measured(points, COLLECTIVES, with_constants(facts, {"comm_fixed": 40.0}))
    own = tmp_path / "mine.toml"
    fit = said("calibrate", "--points", str(path), "--out", str(own), "--json")
    assert fit["values"]["comm_fixed"] > facts["calibration.comm_fixed"].value
    assert tomllib.loads(own.read_text("utf-8")).keys() == {c.name for c in CONSTANTS}
    before = said(*asked)
    monkeypatch.setenv("TWIN_CALIBRATION", str(own))
    after = said(*asked)
    assert after["summary"]["tpot_s_mean"] > before["summary"]["tpot_s_mean"]


def test_a_calibration_that_cannot_be_written_is_one_sentence(tmp_path):
    values = {c.name: c.start for c in calibrate.CONSTANTS}
    with pytest.raises(NotWritten, match="cannot be written: Is a directory"):
        calibrate.write_calibration(calibrate.Fit(values, {"a": 0.0}), tmp_path)


def test_the_command_says_one_sentence_of_a_file_that_holds_no_points(twin):
    done = twin("calibrate", "--points", "README.md")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"README.md, line 1: no column is called quantity" in done.stderr


def errors_of(x, chosen):
    return (SLOPE @ (x - TRUTH))[list(chosen)]


def test_a_constant_that_one_row_carries_goes_back_to_its_start_without_it():
    ones = np.ones(3)
    space = SimpleNamespace(start=START, errors=errors_of)
    assert _refit(space, [SLOPE], ones, [0, 1, 2]) == pytest.approx(TRUTH, abs=1e-3)
    without = _refit(space, [SLOPE], ones, [1, 2])
    assert without == pytest.approx([START[0], TRUTH[1]], abs=1e-3)


def test_rows_of_one_kernel_leave_each_other_out(facts):
    rows = [
        r for r in load_published() if r.kind == "calibrating" and r.id.startswith("cm384-dispatch")
    ]
    own = [c for c in CONSTANTS if c.name in ("quantise", "barrier_round")]
    cross = cross_validate(facts, rows, own)
    assert [left.name for left in cross.left_out if left.by == "row"] == [r.id for r in rows]
    assert [span.name for span in cross.constants] == [c.name for c in own]
    assert all(span.low <= span.high for span in cross.constants)
    assert all(left.predicted >= 0.0 for left in cross.left_out)


def test_the_kept_cross_validation_has_every_constant_and_every_calibrating_row():
    cross = load_made().cross
    assert {span.name for span in cross.constants} == {c.name for c in CONSTANTS}
    assert all(0.0 <= left.predicted < 1.0 for left in cross.left_out)
    assert {left.by for left in cross.left_out} == {"row", "source", "system"}
