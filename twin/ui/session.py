"""A visitor's draft: a list of `Scenario` values in session state, an undo step each. Widgets are
keyed by field and generation; an edit that contradicts other fields is *pending* until it fits."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st
from starlette.requests import Request

from twin.facts import FactError, Facts
from twin.hardware.imported import ImportedMachine
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab import library
from twin.lab.runs.executor import Runner
from twin.lab.share import links, shipped
from twin.lab.store import RunRow, Store, StoreError, open_store
from twin.scenario import Scenario, SpecError, value_of, with_overrides
from twin.ui import access, words
from twin.ui.fields import field_of, sentence
from twin.ui.show import plain

log = logging.getLogger(__name__)

HISTORY_LENGTH = 100  # scenarios a visitor can step back through
HELD_MAX = 8  # machines that links brought along


def facts() -> Facts:
    """All facts, read from disk once per process."""
    return library.load_facts()


def store() -> Store:
    """The store with the rights of this visitor."""
    return _store_for(access.visitor())


def store_of(request: Request) -> Store:
    """The store with the rights of a request's visitor. Raises PermissionError without a login."""
    return _store_for(access.visitor_of(request))


def _store_for(visitor: str) -> Store:
    """The store with the rights of a visitor; with all rights on a server of open access."""
    shared_store = _store()
    if access.mode() == "":
        return shared_store
    return shared_store.for_visitor(visitor, writes=access.mode() != access.READ_ONLY)


@st.cache_resource(show_spinner=False)
def _store() -> Store:
    """The one store of this process, shared by all visitors, with every preset in it."""
    new_store = open_store()
    new_store.scenarios.store_presets()
    return new_store


@contextmanager
def toast_refusals(icon: str = "error") -> Iterator[None]:
    """Context in which a StoreError or SpecError becomes a toast, and the page continues."""
    try:
        yield
    except (StoreError, SpecError) as error:
        st.toast(sentence(str(error)), icon=f":material/{icon}:", duration="long")


@contextmanager
def show_damage() -> Iterator[None]:
    """Context in which a StoreError (missing or damaged data) is drawn where it occurs."""
    try:
        yield
    except StoreError as error:
        st.error(sentence(str(error)), icon=":material/broken_image:")


@st.cache_resource(show_spinner=False)
def runner() -> Runner:
    """The one runner of this process; at its start it marks unfinished runs of ended servers."""
    return Runner(_store()).start()


def start_runner() -> None:
    """Start the runner before its first use; errors are logged, and pages report them again."""
    try:
        facts()
        shipped.submit_if_stale(_store(), runner())
    except (FactError, StoreError) as error:
        log.warning("no run can be started yet: %s", error)


@st.cache_resource(show_spinner=False, max_entries=1)
def preset_list() -> list[tuple[str, Scenario]]:
    """(key, scenario) of every preset, in the order the gallery shows them; never changed."""
    return [(preset.key, preset.scenario) for preset in library.presets()]


def initial_draft() -> Scenario:
    """The first preset, with which a visitor begins; without presets the default scenario."""
    return dict(preset_list()).get(library.FIRST_PRESET) or Scenario()


def _state() -> Any:
    """This visitor's session state, filled at its first use."""
    if "history" not in st.session_state:
        first_draft = initial_draft()
        st.session_state.update(
            history=[first_draft], position=0, preset=first_draft, generation=0, pending={},
            refusal="", addresses=[], link_problem="", edited_path="",
        )  # fmt: skip
    return st.session_state


def draft() -> Scenario:
    """The scenario as edited so far, always valid."""
    state = _state()
    return state.history[state.position]


def preset() -> Scenario:
    """The scenario the draft started from: the reference of its differences."""
    return _state().preset


def set_draft(scenario: Scenario) -> None:
    """Set the draft as one undo step; undone steps are dropped."""
    state = _state()
    if scenario != draft():
        history = state.history[: state.position + 1] + [scenario]
        state.history = history[-HISTORY_LENGTH:]
        state.position = len(state.history) - 1
    _drop_pending_edits()


def start_from(scenario: Scenario) -> None:
    """Make a scenario the draft. Changes are shown against its preset, or itself without one."""
    new_draft, origin = words.draft_and_origin(scenario, (preset for _, preset in preset_list()))
    set_draft(new_draft)
    _state().preset = origin


def propose(changes: dict[str, Any]) -> str:
    """Change fields of the draft (value by dotted path) together with pending edits. Returns '', or
    why they are refused and remain pending."""
    state = _state()
    all_changes = state.pending | changes
    try:
        scenario = with_overrides(draft(), all_changes)
    except SpecError as error:
        state.pending, state.refusal = all_changes, _refusal_of(changes)
        for path, value in reversed(all_changes.items()):
            if not state.refusal and (reason := _refusal_of({path: value})):
                state.refusal, state.edited_path = reason, path
        state.refusal = state.refusal or str(error)  # each is possible, and not all together
        return state.refusal
    generation = state.generation
    set_draft(scenario)
    # The widgets already show these values: keep them, and with them the visitor's focus.
    state.generation = generation
    return ""


def _refusal_of(changes: dict[str, Any]) -> str:
    """Why the draft with only these changes (value by path) is refused; '' if it is valid."""
    try:
        with_overrides(draft(), changes)
    except SpecError as error:
        return str(error)
    return ""


def edit_field(path: str) -> None:
    """Callback of the widget of a field: write its value into the draft."""
    if is_gone(field_key(path)):
        return
    value = st.session_state[field_key(path)]
    _state().edited_path = path
    if value is None:  # an emptied field: show the last value again
        _state().generation += 1
    elif field_of(path).kind is int and float(value).is_integer():
        propose({path: int(value)})
    elif path == "supernode.machine" and value in recipe_names(facts()):
        propose(as_sold(value, facts()))
    else:
        propose({path: value})


def is_gone(key: str) -> bool:
    """Whether a widget has left the page; browsers send old widgets again with a new page's."""
    return key not in st.session_state


def widget_value(path: str) -> Any:
    """Value of a field's widget: the refused edit if there is one, otherwise the draft's value."""
    pending_edits = _state().pending
    return pending_edits[path] if path in pending_edits else value_of(draft(), path)


def draft_with_pending() -> Scenario:
    """The draft with pending edits, possibly invalid: only to decide what a form shows."""
    scenario = draft()
    for path, value in _state().pending.items():
        scenario = _with_value(scenario, path.split("."), value)
    return scenario


def _with_value(section: Any, parts: list[str], value: Any) -> Any:
    """Copy of a section with the value at a path of attribute names replaced, without any check."""
    if len(parts) > 1:
        value = _with_value(getattr(section, parts[0]), parts[1:], value)
    return section.model_copy(update={parts[0]: value})


def refusal(path: str = "") -> str:
    """Why pending edits are refused, or ''. With a path: only if its field is among them."""
    state = _state()
    return state.refusal if not path or path in state.pending else ""


def latest_refusal(path: str) -> str:
    """Why this field's edit was refused, if that was the last refused edit; otherwise ''."""
    return refusal(path) if _state().edited_path in ("", path) else ""


def field_key(path: str) -> str:
    """Key of a field's widget; changes when the draft is changed elsewhere."""
    return f"field:{path}:{_state().generation}"


def can_undo_or_redo(steps: int) -> bool:
    """Whether there is an edit to undo, also a refused one (steps = -1), or to redo (steps = 1)."""
    state = _state()
    return 0 <= state.position + steps < len(state.history) or (steps < 0 and bool(state.pending))


def undo_or_redo(steps: int) -> None:
    """Undo (steps = -1) or redo (steps = 1) an edit; undo drops refused edits instead."""
    state = _state()
    if 0 <= state.position + steps < len(state.history) and not (steps < 0 and state.pending):
        state.position += steps
    _drop_pending_edits()


def _drop_pending_edits() -> None:
    """Drop pending edits and their refusal; all widgets get new keys and are drawn anew."""
    state = _state()
    state.generation += 1
    state.pending, state.refusal, state.edited_path = {}, "", ""


def open_link() -> None:
    """Make the address's scenario the draft, once for each address, or draw why it cannot be;
    without facts or a store draw why, and stop the page."""
    try:
        facts()
        runner()
    except FactError as error:  # a broken file, or a wrong one named in TWIN_CALIBRATION
        st.error(plain(f"{error}."), title="The facts cannot be read", icon=":material/rule:")
        st.stop()
    except StoreError as error:
        error_text = plain(str(error))
        st.error(error_text, title="Nothing can be stored here", icon=":material/database_off:")
        st.stop()
    state, query = _state(), st.query_params.to_dict()
    scenario_text = links.scenario_query(query)
    if scenario_text and scenario_text not in state.addresses:
        state.addresses.append(scenario_text)
        state.link_problem = ""
        try:
            start_from(links.open_scenario(query, store(), remember_machine))
        except links.ShareError as error:
            state.link_problem = str(error)
    if scenario_text and state.link_problem:
        st.error(sentence(state.link_problem), icon=":material/link_off:")


def remember_machine(machine: ImportedMachine) -> None:
    """Remember a machine that came with a link; its run or its copied link will store it."""
    held_machines = {**st.session_state.get("held", {}), machine.digest: machine}
    st.session_state["held"] = dict(list(held_machines.items())[-HELD_MAX:])


def open_linked_run() -> None:
    """Make the scenario of the address's run the draft, unless the draft was edited; or draw why
    it cannot be."""
    query = st.query_params.to_dict()
    if is_edited() or links.scenario_query(query):
        return
    row = links.open_run(query, store())
    if isinstance(row, RunRow):
        try:
            start_from(store().scenarios.load(row.scenario))
        except (StoreError, SpecError) as error:
            st.error(sentence(str(error)), icon=":material/link_off:")


def named_draft() -> Scenario:
    """The draft, named after its first change from the preset, as its runs and links are."""
    return words.name_draft(draft(), preset())


def draft_url(page: str) -> str:
    """Path and query of a page with the draft; remembered, so opening it changes no draft."""
    path, state = links.draft_url(named_draft(), page), _state()
    if (query := path.partition("?")[2]) not in state.addresses:
        state.addresses = [*state.addresses[-HISTORY_LENGTH:], query]
    return path


def is_edited() -> bool:
    """Whether this visitor has edited the draft, which then stays in the address bar."""
    return len(_state().history) > 1


def start_run(scenario: Scenario, engine: str = "") -> str:
    """Submit a scenario to the runner, unless its run is stored; returns the run's id. engine:
    module of another engine, such as `job.EXPLAIN`; '' for the usual one. Raises StoreError."""
    return runner().submit(scenario, store(), engine)


def stop_run(run: str) -> None:
    """Stop a run with this visitor's rights; raises StoreError."""
    runner().cancel(run, store())
