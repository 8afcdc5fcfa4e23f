import pytest

from twin.hardware.chip import load_chip
from twin.lab.library import presets
from twin.model.prefill import hbm_share_of_decode, hbm_share_of_prefill
from twin.model.roofline import load_machine
from twin.model.shape import ModelError
from twin.scenario import with_overrides
from twin.steady import assemble, predict_steady


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("chip", ["ascend-910c", "h800"])
def test_both_draw_no_more_of_the_hbm_than_there_is(facts, chip, share):
    prefill, decode = (load_machine(facts, load_chip(facts, chip), cores=x)
                       for x in (share, 1.0 - share))  # fmt: skip
    part = hbm_share_of_prefill(prefill, decode)
    most = load_machine(facts, prefill.chip, cores=share, hbm=part).drawn_share(1.0)
    assert most == pytest.approx(part) and share * 0.99 <= part <= prefill.drawn_share(1.0)
    assert (
        most
        + decode.drawn_share(1.0) / max(1.0, prefill.drawn_share(1.0) + decode.drawn_share(1.0))
        <= 1.0 + 1e-12
    )


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_prefill_leaves_what_its_batches_do_not_move(facts, share):
    s = next(p.scenario for p in presets() if p.key == "prefill-on-decode")
    s = with_overrides(s, {"deployment.prefill.core_share": share})
    machine = load_machine(facts, load_chip(facts, "ascend-910c"), cores=share)
    costs = assemble(s, facts).costs.prefill
    few, many = (hbm_share_of_decode(costs, tokens, machine) for tokens in (2e3, 64e3))
    # The weights of a batch are read once: of more tokens they are less.
    assert 1.0 - machine.drawn_share(1.0) < few < many < 1.0


def test_a_batch_of_prompts_that_leaves_decode_little_space_is_named(facts):
    quick = next(p.scenario for p in presets() if p.key == "quickstart")
    shared = {"deployment.prefill.on": "decode_npus", "deployment.prefill.tokens_per_npu": 8192}
    advice = predict_steady(with_overrides(quick, shared), facts).advice
    assert "its KV space holds 22 of 96 requests per NPU: a smaller deployment.prefill" in advice
    less = with_overrides(quick, shared | {"deployment.prefill.tokens_per_npu": 4096})
    assert "KV space" not in predict_steady(less, facts).advice
    # A block less than the KV space of one request: the router and decode ask for it too.
    with pytest.raises(ModelError, match="or less .with 10979 a die has KV space for one request"):
        predict_steady(with_overrides(quick, {"deployment.prefill.on": "decode_npus"}), facts)
