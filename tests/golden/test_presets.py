"""Golden figures of the presets: what each of them answered when its figures last changed.

A change here is a line in CHANGELOG. `make golden` writes the file anew.
"""

import json
from functools import cache
from pathlib import Path

import pytest

from tests.draws import some
from tests.laws.lawful import lawful
from twin.engine.simulate import Run, simulate
from twin.lab.library import load_facts, presets
from twin.lab.share import shipped
from twin.scenario import scenario_digest

GOLDEN = Path(__file__).with_name("presets.json")
FIGURES = (
    "requests", "finished", "rejected", "preemptions", "ttft_s_p50", "ttft_s_p99", "tpot_s_mean",
    "e2e_s_p50", "goodput_req_per_s", "hit_token_ratio", "prefill_tokens_per_s_per_npu",
    "decode_tokens_per_s_per_npu", "decode_iteration_s_mean",
)  # fmt: skip
KEYS = [p.key for p in presets()]
# Each kind of deployment, and what moves during a run; `make golden` and `make long` take all.
FEW = ["quickstart", "colocated-contrast", "two-supernodes", "fault-node"]
DRAWN = some(FEW, *(key for key in KEYS if key not in FEW))


@cache
def answer(key: str) -> Run:
    return simulate(next(p.scenario for p in presets() if p.key == key), load_facts())


def figures(key: str) -> dict[str, float]:
    """The headline figures a preset has, at eight digits: enough to see any change at all."""
    summary = answer(key).summary
    return {f: float(f"{summary[f]:.8g}") for f in FIGURES if summary[f] is not None}


def changes(found: dict[str, float], golden: dict[str, float]) -> list[str]:
    """Which figures moved by more than a millionth, from what to what."""
    moved = []
    for name in sorted({*found, *golden}):
        was, now = golden.get(name), found.get(name)
        if was is None or now is None or now != pytest.approx(was, rel=1e-6):
            moved.append(f"{name}: {was} -> {now}")
    return moved


@pytest.mark.parametrize("key", DRAWN)
def test_a_preset_answers_as_before(key: str):
    golden = json.loads(GOLDEN.read_text("utf-8"))
    moved = changes(figures(key), golden[key])
    assert not moved, "\n".join(["run `make golden`, and say why in CHANGELOG:", *moved])


def test_a_change_is_told_by_name():
    golden = {"finished": 10.0, "tpot_s_mean": 0.05}
    assert changes({"finished": 10.0, "tpot_s_mean": 0.05 + 1e-9}, golden) == []
    assert changes({"finished": 11.0}, golden) == [
        "finished: 10.0 -> 11.0", "tpot_s_mean: 0.05 -> None",
    ]  # fmt: skip


@pytest.mark.parametrize("key", DRAWN)
def test_a_preset_breaks_no_law_and_serves_everyone(key: str):
    run = answer(key)
    lawful(run)
    assert run.summary["rejected"] == 0
    assert run.summary["requests_steady"] >= 500


def test_every_golden_figure_belongs_to_a_preset():
    assert list(json.loads(GOLDEN.read_text("utf-8"))) == KEYS


def test_the_cards_of_the_presets_say_the_golden_figures():
    told = shipped.shipped_summaries()
    for preset in presets():
        golden = json.loads(GOLDEN.read_text("utf-8"))[preset.key]
        on_card = told[scenario_digest(preset.scenario)]
        for name in {"tpot_s_mean", "decode_tokens_per_s_per_npu"} & set(golden):
            assert on_card[name] == pytest.approx(golden[name], rel=0.05), preset.key


if __name__ == "__main__":
    text = json.dumps({key: figures(key) for key in KEYS}, indent=1)
    GOLDEN.write_text(text + "\n", "utf-8")
    cards = {
        scenario_digest(p.scenario): figures(p.key)
        | {"slo_attainment": answer(p.key).summary["slo_attainment"]}
        for p in presets()
    }
    (shipped.FOLDER / shipped.ANSWERS).write_text(json.dumps(cards, indent=1) + "\n", "utf-8")
