"""A field is declared once: a made-up one is found in form, docs, link, file and command line."""

import inspect
import sys

import pytest
from pydantic.fields import FieldInfo

from docs.make import field_table
from tests.ui.conftest import patient
from twin.lab import ask
from twin.lab.library import presets, scenario_from_toml, scenario_to_toml
from twin.lab.share.links import PORTABLE, open_scenario, pack_scenario
from twin.lab.sweep.compare import input_rows
from twin.scenario import (
    SCHEMA_VERSION,
    Scenario,
    SpecError,
    fields,
    form_groups,
    json_text,
    legacy_digests,
    with_overrides,
)
from twin.scenario.declaration import quantity, when
from twin.ui import session
from twin.ui.fields import field_of, tooltip, why_idle


def forget_scenarios():
    """Clear what is cached by scenario: those with the field equal others once it is gone, and a
    cache with two equal keys returns one's value for the other."""
    modules = [module for name, module in sys.modules.items() if name.startswith("twin.")]
    caches = {f for module in modules for f in vars(module).values() if hasattr(f, "cache_clear")}
    for function in caches:
        kinds = [p.annotation for p in inspect.signature(function).parameters.values()]
        if Scenario in kinds or "Scenario" in kinds:
            function.cache_clear()


@pytest.fixture
def new_field():
    """A scenario with one field more: grace_s, 0 to 10 s, of colocated instances only."""
    declared = quantity(
        3.0,
        "s",
        "Grace period",
        (0, 10),
        group="Routing",
        since=SCHEMA_VERSION,
        applies=(when("deployment.mode", "colocated"),),
    )
    before = json_text(Scenario()), legacy_digests(Scenario())
    forget_scenarios()
    presets.cache_clear()
    session.preset_list.clear()
    info = FieldInfo.from_annotated_attribute(float, declared)
    info.description = (
        "How long a request may wait. [a test]"  # in a class: the sentence below the field
    )
    Scenario.__pydantic_fields__["grace_s"] = info
    Scenario.model_rebuild(force=True)
    fields.cache_clear()
    yield before
    presets.cache_clear()
    session.preset_list.clear()
    del Scenario.__pydantic_fields__["grace_s"]
    Scenario.model_rebuild(force=True)
    fields.cache_clear()
    forget_scenarios()


def one_field() -> None:
    """The script under test: the new field in its form."""
    from twin.ui import forms

    forms.draw_field("grace_s")


def test_a_new_field_stands_everywhere_and_renames_nothing(new_field):
    assert (json_text(Scenario()), legacy_digests(Scenario())) == new_field
    asked, _ = ask.scenario_and_trace("quickstart", ["grace_s=4.5"])
    assert asked.grace_s == 4.5 and legacy_digests(asked) == ()
    opened = open_scenario({PORTABLE: pack_scenario(asked)}, None, id)
    assert opened == asked == scenario_from_toml(scenario_to_toml(asked).encode())
    assert "grace_s = 4.5  # s" in scenario_to_toml(asked)
    assert "| `grace_s` | 3 | s | 0 to 10 | Grace period: How long a request" in field_table()
    assert [row["field"] for row in ask.fields_like("grace period")] == ["grace_s"]
    assert "grace_s" in form_groups("deployment")["Routing"]
    assert field_of("grace_s").title == "Grace period (s)" and "a test" in tooltip("grace_s")
    assert why_idle("grace_s", asked) == "only with Serving mode: Colocated"
    [change] = input_rows(ask.scenario_and_trace("quickstart")[0], asked)
    assert (change.path, *change.values, change.unit) == ("grace_s", 3.0, 4.5, "s")
    with pytest.raises(SpecError, match="grace_s = 11 should be less than or equal to 10 s"):
        with_overrides(asked, {"grace_s": 11})
    at = patient(one_field).run()
    at.number_input[0].set_value(4.5).run()
    assert at.session_state["history"][-1].grace_s == 4.5
