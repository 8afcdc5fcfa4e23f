"""Every field of a scenario has one place in one form, says its unit, and reaches the draft."""

import ast
import itertools

import pytest

from tests.test_house import nodes, sources
from tests.ui.conftest import patient
from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab.library import load_facts, presets
from twin.scenario import (
    FORMS,
    Scenario,
    SpecError,
    field_info,
    field_unit,
    fields,
    form_groups,
    value_of,
    with_overrides,
)
from twin.ui.fields import (
    NAME,
    choice_label,
    field_of,
    options,
    rows_in_words,
    sentence,
    text_of,
    tooltip,
    why_idle,
)

PATHS = [path for path, known in fields().items() if known.form]
# Words about the scenario, what an upload fills in, and lists with an editor of their own.
ELSEWHERE = (
    "name", "question", "source", "workload.trace.name", "workload.trace.digest",
    "experts.counts.name", "experts.counts.digest", "supernode.edits",
    "supernode.kinds", "faults",
    "deployment.seats", "tenants", "models", "workload.profile.pieces",
    "elastic.schedule", "elastic.own.name", "elastic.own.digest",
)  # fmt: skip


def one_field(path: str) -> None:
    """The script under test: one field of the form."""
    from twin.ui import forms

    forms.draw_field(path)


def other_value(path, value):
    """A value of the field that is allowed and not the one it has."""
    choices = options(path, load_facts())
    if isinstance(value, bool):
        return not value
    if choices is not None:
        return next((c for c in choices if c != value), None)
    if isinstance(value, str):
        return "6x8"
    smaller = type(value)((field_info(path).low + value) / 2)
    return smaller if smaller != value else min(value + 1, field_info(path).high)


LISTS = (  # path, rows, these in words
    ("faults", [{"element": "node 31", "kind": "fail", "at_s": 106.0, "to": ""}],
     "node 31 fails at 106 s"),
    ("deployment.seats", [{"role": "decode", "index": 0, "element": "node 20"}],
     "decode 0 on node 20"),
    ("elastic.schedule", [{"at_s": 600.0, "prefill": 2, "decode": 3}],
     "from 600 s 2 prefill and 3 decode"),
    ("workload.profile.pieces", [{"at_s": 110.0, "rate": 2.0}, {"at_s": 130.0}],
     "from 110 s rate ×2; from 130 s as the profile says"),
    ("supernode.kinds", [{"chip": "ascend-950dt", "nodes": 16}], "16 nodes of Ascend 950DT"),
    ("supernode.edits", [], "none"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "rows", "text"), LISTS)
def test_rows_of_a_list_are_one_sentence(path, rows, text):
    assert rows_in_words(path, rows) == text


def test_every_field_has_exactly_one_place():
    placed = [path for form in FORMS for paths in form_groups(form).values() for path in paths]
    assert sorted([*placed, *ELSEWHERE]) == sorted(path for path in fields() if "[]" not in path)


@pytest.mark.parametrize("path", PATHS)
def test_a_field_says_its_unit_and_where_its_default_comes_from(path):
    unit = field_unit(path)
    assert unit.lower() in field_of(path).title.lower()
    assert "Default" in tooltip(path)


def test_a_format_that_a_chip_lacks_is_refused_with_the_labels_of_the_fields_to_change():
    with pytest.raises(HardwareError) as refusal:
        load_chip(load_facts(), "b200").peak("int8")
    said = sentence(str(refusal.value))
    assert said.endswith("choose one of these as Weights, or as Weights of prefill.")


def test_a_choice_is_shown_by_its_label_and_an_element_as_it_is_typed():
    facts = load_facts()
    assert choice_label("deployment.model", "deepseek-r1", facts).startswith("DeepSeek-R1 / ")
    assert choice_label("router.policy", "round_robin") == "Round robin"
    assert choice_label("faults[].element", "sub-plane 3", facts) == "sub-plane 3"
    assert text_of("a_trace.jsonl", "workload.trace.name") == "a_trace.jsonl"


@pytest.mark.parametrize("path", PATHS)
def test_an_edit_reaches_the_draft_and_nothing_else_or_is_refused_in_a_sentence(path):
    at = patient(one_field, args=(path,)).run()
    before = at.session_state["history"][0]
    value = other_value(path, value_of(before, path))
    if value is None:
        pytest.skip(f"{path} has one choice only: {options(path, load_facts())}")
    widget = at.get_by_key(f"field:{path}:0")
    widget.set_value(value)
    at.run()
    assert not at.exception
    after = at.session_state["history"][-1]
    # Another machine comes as it is sold: with the sizes of its recipe.
    machine = path == "supernode.machine" and value in recipe_names(load_facts())
    changes = as_sold(value, load_facts()) if machine else {path: value}
    try:
        assert after == with_overrides(before, changes)
    except SpecError as refused:
        assert after == before
        assert sentence(str(refused)) in at.markdown[0].value


def scenarios():
    """Scenarios with every combination of the choices that switch other fields off."""
    for arrivals, prefix, mode in itertools.product(
        ("poisson", "gamma", "closed_loop", "trace"),
        ("shared", "sessions"),
        ("disaggregated", "colocated"),
    ):
        yield with_overrides(
            Scenario(),
            {
                "workload.arrivals": arrivals,
                "workload.prefix": prefix,
                "workload.trace.digest": "0" * 64,
                "deployment.mode": mode,
            },
        )
    yield with_overrides(Scenario(), {"tenants": [{"name": "a"}], "clients.retries": 1})
    tools = {"workload.prefix": "sessions", "workload.tool_share": 0.5}
    yield with_overrides(Scenario(), tools)
    yield with_overrides(Scenario(), {"workload.lengths": "range"})
    yield with_overrides(Scenario(), {"deployment.prefill.chunk_tokens": 8192})
    for attention in ("tp", "dp"):
        yield with_overrides(Scenario(), {"deployment.prefill.attention": attention})
    for key in ("prefill-on-decode", "four-supernodes-front-router"):
        yield next(p.scenario for p in presets() if p.key == key)
    yield with_overrides(Scenario(), {"supernode.machine": "dragonfly"})
    yield with_overrides(Scenario(), {"deployment.decode.expert_npus": 48})
    yield with_overrides(Scenario(), {"deployment.decode.attention_offload": 0.2})
    yield with_overrides(Scenario(), {"deployment.decode.kv_offload": 0.2})
    yield with_overrides(Scenario(), {"router.policy": "weighted", "memory_pool.policy": "ttl"})
    for controller in ("rebalance", "queue"):
        yield with_overrides(Scenario(), {"elastic.controller": controller})
    to_zero = {"elastic.controller": "queue", "elastic.least_instances": 0}
    yield with_overrides(Scenario(), to_zero)
    for shape in ("spike", "day", "servegen_r1_day"):
        yield with_overrides(Scenario(), {"workload.profile.shape": shape})
    for popularity, policy in (("power_law", "threshold"), ("skewed", "layer_budget")):
        yield with_overrides(
            Scenario(),
            {
                "experts.popularity": popularity,
                "experts.topics": 2,
                "experts.balancing.policy": policy,
            },
        )


@pytest.mark.parametrize("path", PATHS)
def test_every_field_applies_to_some_scenario(path):
    assert any(not why_idle(path, s) for s in scenarios())


def two_pools() -> None:
    """The script under test: two fields that only hold together."""
    from twin.ui import forms

    forms.draw_group(("deployment.prefill.instances", "deployment.decode.npus_per_instance"))


def test_a_refused_edit_waits_for_the_one_that_makes_it_possible():
    at = patient(two_pools).run()
    first = at.session_state["history"][0]
    at.number_input(key="field:deployment.prefill.instances:0").set_value(20).run()
    assert "needs" in at.markdown[0].value
    assert at.session_state["history"][-1] == first
    at.number_input(key="field:deployment.decode.npus_per_instance:0").set_value(64).run()
    assert not at.markdown
    assert at.session_state["history"][-1].deployment.prefill.instances == 20
    assert at.session_state["history"][-1].deployment.decode.npus_per_instance == 64


def three_fields() -> None:
    """The script under test: fields that know nothing of each other."""
    from twin.ui import forms

    forms.draw_group(("workload.input_tokens", "workload.output_tokens", "slo.tpot_ms"))


def test_of_two_refused_edits_the_newest_says_its_own_reason_and_a_good_one_says_none():
    at = patient(three_fields).run()
    for path, value, named in (
        ("workload.input_tokens", 0, "Prompt length"),
        ("slo.tpot_ms", 0.0, "TPOT SLO"),
        ("workload.output_tokens", 100, "TPOT SLO"),
        ("slo.tpot_ms", 50.0, "Prompt length"),
    ):
        at.number_input(key=f"field:{path}:0").set_value(value).run()
        assert [named in m.value for m in at.markdown] == [True], [m.value for m in at.markdown]
    at.number_input(key="field:workload.input_tokens:0").set_value(10).run()
    draft = at.session_state["history"][-1]
    assert not at.markdown
    assert (draft.workload.input_tokens, draft.workload.output_tokens) == (10, 100)


def undoable() -> None:
    """The script under test: a field and the two buttons of history."""
    import streamlit as st

    from twin.ui import forms, session

    st.button("undo", on_click=session.undo_or_redo, args=(-1,), key="undo")
    st.button("redo", on_click=session.undo_or_redo, args=(1,), key="redo")
    forms.draw_field("workload.input_tokens")


def shown(at):
    return at.number_input[0].value


def test_undo_and_redo_step_through_the_scenarios():
    at = patient(undoable).run()
    first = shown(at)
    at.number_input[0].set_value(first + 100).run()
    at.number_input[0].set_value(first + 200).run()
    at.button(key="undo").click().run()
    assert shown(at) == first + 100
    at.button(key="undo").click().run()
    assert shown(at) == first
    at.button(key="redo").click().run()
    assert shown(at) == first + 100


def test_an_emptied_number_keeps_its_last_value():
    at = patient(undoable).run()
    first = shown(at)
    at.number_input[0].set_value(None).run()
    assert not at.exception
    assert shown(at) == first


def test_trace_arrivals_without_a_trace_are_refused_in_one_sentence():
    with pytest.raises(SpecError, match="load a trace file first"):
        with_overrides(Scenario(), {"workload.arrivals": "trace"})


def test_an_edit_of_a_widget_that_has_left_the_page_changes_nothing_and_breaks_nothing():
    at = patient(one_field, args=("deployment.prefill.instances",)).run()
    left = at.get_by_key("field:deployment.prefill.instances:0")
    before = at.session_state["history"]
    left.set_value(left.value + 1)
    at.session_state["generation"] = 1  # what an undo, a preset or a fault does meanwhile
    at.run()
    assert not at.exception
    assert at.session_state["history"] == before


# Names that stand in a person's own file, which a sentence about that file must name.
OF_FILES = {"hash_ids", "logical_count", "block_size", "dies_per_npu"}


def told(node):
    """The words of a message in the source, a 0 for every figure in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "0" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return told(node.left) + told(node.right)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_no_message_of_the_twin_shows_an_identifier():
    messages = [
        told(argument)
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for argument in node.exc.args
    ]
    shown = [sentence(text).replace("\\", "") for text in messages if " " in text]
    assert len(shown) > 200
    wrong = [text for text in shown if set(m.group() for m in NAME.finditer(text)) - OF_FILES]
    assert not wrong


def test_a_refusal_names_fields_and_choices_as_the_form_does_and_quotes_as_typed():
    assert sentence("deployment.mode = 'prefill_only' decodes nothing") == (
        "Serving mode = Prefill only decodes nothing."
    )
    assert "UB sub-planes = 6" in sentence("take sub_planes = 6")
    assert "'my_sub_planes'" in sentence("no file is named 'my_sub_planes'").replace("\\", "")


def test_a_whole_number_is_read_as_it_was_typed_and_a_broken_one_is_refused():
    at = patient(two_pools).run()
    field = at.number_input(key="field:deployment.prefill.instances:0")
    assert (field.value, field.proto.format) == (6, "%.15g")  # an int would read 1e1 as 1
    field.set_value(1e1).run()
    assert at.session_state["history"][-1].deployment.prefill.instances == 10
    assert type(at.session_state["history"][-1].deployment.prefill.instances) is int
    field.set_value(2.5).run()
    assert "2.5 should be a whole number" in at.markdown[0].value
