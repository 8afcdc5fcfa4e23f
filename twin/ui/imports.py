"""Imported files, one entry a kind, one form for all; the store refuses to delete a used one."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import streamlit as st

from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import ImportedMachine, npus_of
from twin.hardware.placement import usable_npu_count
from twin.lab import ask, machines
from twin.lab.kinds import TRACE, CountsTable, Kind
from twin.lab.runs.apart import Refused, read_in_process
from twin.lab.store import ImportRow, StoreError, UnknownId
from twin.lab.store.handle import Values
from twin.lab.traces import reader
from twin.metrics.measures import amount, numbered
from twin.scenario import ROUTINGS, Scenario, SpecError, npus_used, with_overrides
from twin.scenario.words import first_few
from twin.ui import forms, session, words
from twin.ui.fields import sentence
from twin.ui.show import plain
from twin.workload.offered import offered_load
from twin.workload.requests import WorkloadError

OFFERED = 50  # values offered for choice
OWN = "What the draft uses stays: choose another first."


class Preview(NamedTuple):
    """Preview of a file's contents, as Markdown."""

    title: str
    figures: Mapping[str, str]
    notes: Iterable[str] = ()
    help: Mapping[str, str] = {}  # of figures


class Import(NamedTuple):
    """One kind of imported value that a draft can use."""

    noun: str  # what one is called
    plural: str
    says: str  # what a draft does with one: 'Replays **{}**'
    label: str  # of the uploader
    help: str
    row_label: Callable[[ImportRow], str]
    preview: Callable[[Any], Preview]
    put_into: Callable[[Scenario, Any], Scenario]  # the draft with it
    draw_options: Callable[[Any], Any] = lambda value: value  # draws what the file leaves open

    def stored(self) -> Values[Any]:
        """The stored values of this kind: the attribute `plural` of the store."""
        stored_values: Values[Any] = getattr(session.store(), self.plural)
        return stored_values


def draw_upload(kind: Import) -> None:
    """Draw the draft's imported value, the choice of a stored one, and the upload of a file."""
    stored_values, draft = kind.stored(), session.draft()
    reference, missing_text = stored_values.kind.named(draft), stored_values.missing_text(draft)
    used_digest, name = (reference.digest, reference.name) if reference else ("", "")
    if missing_text:
        st.error(sentence(missing_text), icon=":material/link_off:")
    elif used_digest:
        stored_row = stored_values.get(used_digest)
        name = name or (stored_row.name if stored_row else "")  # a machine's is not in the scenario
        st.markdown(f":material/description: {kind.says.format(plain(name) or 'a recorded one')}")
    _draw_choice(kind, used_digest)
    if stored_values.kind.reader is None:
        return
    file = st.file_uploader(kind.label, help=kind.help, key=f"{kind.plural}-file")
    if file is None:
        return
    try:
        file_value = _read_upload(kind.noun, file.getvalue(), file.name, stored_values.kind)
        if file_value.digest == used_digest and not missing_text:
            return
        preview = kind.preview(file_value)
    except (Refused, SpecError, WorkloadError) as error:  # also of what no run can hold
        st.error(sentence(str(error), file.name), icon=":material/error:")
        return
    with st.container(border=True):
        st.markdown(preview.title)
        with st.grid(4 if len(preview.figures) == 4 else 3, min_column_width=130):
            for figure_name, figure_text in preview.figures.items():
                st.metric(figure_name, figure_text, help=preview.help.get(figure_name))
        for note in preview.notes:
            st.caption(note)
        file_value = kind.draw_options(file_value)
    if st.button(
        f"Use {'these' if kind.noun == kind.plural else 'this'} {kind.noun}",
        type="primary", icon=":material/check:", key=f"use-{kind.noun}",
    ):  # fmt: skip
        _use_in_draft(kind, lambda: file_value)


@st.cache_data(show_spinner="Reading the file", max_entries=4)
def _read_upload(noun: str, data: bytes, name: str, _kind: Kind[Any]) -> Any:
    """The value in an uploaded file's bytes, cached by noun, data and name. Raises Refused."""
    return read_in_process(_kind, data, name)


def _draw_choice(kind: Import, used_digest: str) -> None:
    """Draw the choice of a stored value for the draft, and a menu to delete one. used_digest: of
    the value that the draft uses, '' if none."""
    stored_values = kind.stored()
    stored_rows = stored_values.search(limit=OFFERED).rows
    label_of = distinct_labels({row.digest: kind.row_label(row) for row in stored_rows})
    if not label_of:
        return
    chosen_digest = st.selectbox(
        f"Stored {kind.plural}", list(label_of),
        index=list(label_of).index(used_digest) if used_digest in label_of else None,
        format_func=lambda d: label_of.get(d, d), key=f"stored-{kind.noun}:{used_digest}",
        placeholder=f"Choose {kind.plural}, or drop a file below",
    )  # fmt: skip
    if chosen_digest and chosen_digest != used_digest:
        _use_in_draft(kind, lambda: stored_values.load(chosen_digest))
    widget_key = f"forget-{kind.plural}"
    with st.popover(f"Delete stored {kind.plural}", icon=":material/delete:"):
        digest = st.selectbox(
            f"{kind.noun.capitalize()} to delete", list(label_of), index=None, key=widget_key,
            format_func=lambda d: label_of.get(d, d), placeholder=f"Choose the {kind.noun}",
        )  # fmt: skip
        why_not = OWN if digest == used_digest else ""
        if digest and not why_not and (users_text := stored_values.use_text(digest)):
            why_not = sentence(users_text)
        if why_not:
            st.markdown(f":material/lock: {why_not}")
        elif digest:
            st.markdown(f"**{plain(label_of[digest])}** will be gone for good.")
        st.button("Delete for good", type="primary", disabled=not digest or bool(why_not),
                  key=f"{widget_key}-yes", on_click=_delete,
                  args=(kind, widget_key, used_digest))  # fmt: skip


def _use_in_draft(kind: Import, load_value: Callable[[], Any]) -> None:
    """Store what `load_value` returns and use it in the draft, or draw why that is impossible."""
    try:
        new_value = load_value()  # another visitor may have deleted it just now
        kind.stored().save(new_value)
        session.set_draft(kind.put_into(session.draft(), new_value))
    except (StoreError, SpecError) as error:
        st.error(sentence(str(error)), icon=":material/error:")
    else:
        st.rerun()


def distinct_labels(names: Mapping[str, str]) -> dict[str, str]:
    """Label of each digest: its name in `names`, followed by part of the digest if names are equal.
    (The widget returns a choice by its label, so that labels must differ.)

    >>> distinct_labels({"0ab1": "a.csv", "77c2": "b.csv", "0ef3": "a.csv"})
    {'0ab1': 'a.csv · 0ab1', '77c2': 'b.csv', '0ef3': 'a.csv · 0ef3'}
    """
    labels = list(names.values())
    return {digest: f"{name} · {digest[:8]}" if labels.count(name) > 1 else name
            for digest, name in names.items()}  # fmt: skip


def _delete(kind: Import, key: str, used_digest: str) -> None:
    """Callback: delete the value chosen in the widget `key`, unless the draft uses it
    (used_digest); report the outcome in a toast."""
    # What is chosen now, not when the button was drawn: a click may overtake the page.
    if session.is_gone(key) or not (digest := st.session_state[key]):
        return
    noun, icon = kind.noun.capitalize(), ":material/delete:"
    try:
        if digest == used_digest:
            raise StoreError(OWN)
        kind.stored().delete(digest)
        outcome_text = f"{noun} deleted."
    except UnknownId:
        outcome_text = f"{noun} already deleted."
    except StoreError as error:
        outcome_text, icon = sentence(str(error)), ":material/lock:"
    st.toast(outcome_text, icon=icon, duration="long")


def _preview_trace(table: Any) -> Preview:
    """Preview of a trace: figures, rows left out by reason, warnings."""
    summary = reader.trace_figures(table)
    duration_s = summary["duration_s"]
    # As the Workload page will say it, in the blocks of this draft's memory pool.
    reuse_share = offered_load(ask.with_trace(session.draft(), table), session.facts(), table).reuse
    no_reuse = "nothing: no prefixes in the file"
    no_time = "no times in the file" if duration_s is None else "all at one time"
    figure_texts = {
        "Lasts": words.duration_text(duration_s) if duration_s else no_time,
        "Requests": amount(summary["rate_req_per_s"], "rate", "req/s"),
        "Prompt : output tokens": f"{summary['prefill_decode_ratio']:,.3g} : 1",
        "Prompt, half under": f"{summary['input_tokens']['p50']:,.0f} tokens",
        "Output, half under": f"{summary['output_tokens']['p50']:,.0f} tokens",
        "Reusable prompt tokens": amount(reuse_share, "share") if table.has_prefix else no_reuse,
    }
    row_counts = summary["counts"].items()  # by reason
    left_out_texts = (f"{numbered(n, 'row')}: {why.replace('_', ' ')}" for why, n in row_counts)
    warning_texts = (f":material/warning: {plain(warning)}" for warning in summary["warnings"])
    title = f"**{summary['format'].capitalize()}** · {numbered(summary['rows'], 'request')}"
    return Preview(title, figure_texts, [*map(plain, left_out_texts), *warning_texts])


TRACES = Import(
    noun="trace", plural="traces", says="Replays **{}**", label="Trace file",
    help=f"{reader.OWN}. Others: {reader.formats_text()}; plain or gzip. Found by content.",
    row_label=lambda row: (
        f"{row.name} ({numbered(row.rows, 'request')}, {amount(row.bytes, 'bytes')})"
    ),
    preview=_preview_trace, put_into=ask.with_trace,
)  # fmt: skip


def draw_trace_upload() -> None:
    """Draw the upload of the trace that the draft replays, and its rate if it has no times."""
    trace = TRACE.named(session.draft())
    trace_row = session.store().traces.get(trace.digest) if trace else None
    if trace_row is not None and not trace_row.about.get("has_time", True):
        forms.draw_field("workload.rate_req_per_s")
    draw_upload(TRACES)


def _preview_counts(table: CountsTable) -> Preview:
    """Preview of routing counts: layers, experts, picks, and load of the hottest expert."""
    layers, experts = table.counts.shape
    hottest_ratios = table.counts.max(axis=1) / table.counts.mean(axis=1)
    figures = {"MoE layers": f"{layers:,}", "Experts": f"{experts:,}",
               "Picks counted": f"{table.counts.sum():,.4g}",
               "Hottest expert": f"{hottest_ratios.mean():.2f} × mean"}  # fmt: skip
    help_texts = {"Hottest expert": "Of its layer's mean expert, averaged over layers."}
    notes = [plain(table.note)] if table.note else []
    return Preview(f"**{plain(table.name)}** · {table.format}", figures, notes, help_texts)


COUNTS = Import(
    noun="counts", plural="counts", says="Popularity of **{}**", label="File of routing counts",
    help="How often each expert of each layer was picked: a NumPy array [layers, experts] or "
    "[steps, layers, experts] (.npy, .npz), a JSON with SGLang's logical_count, a CSV of layer, "
    "expert, count, or a placement pattern of omni-infer; plain or gzip. Found by content.",
    row_label=lambda row: f"{row.name} ({row.about.get('layers')} × {row.about.get('experts')})",
    preview=_preview_counts, put_into=ask.with_counts,
)  # fmt: skip


def _preview_machine(machine: ImportedMachine) -> Preview:
    """Preview of an imported machine: numbers of NPUs, dies, CPUs and links."""
    kind_counts = Counter(attrs["kind"] for _, attrs in machine.vertices)
    figures = {"NPUs": f"{machine.npus:,}", "Dies": f"{kind_counts['die']:,}",
               "CPUs": f"{kind_counts['cpu']:,}", "Links": f"{len(machine.links):,}"}  # fmt: skip
    notes = [] if _has_cpus(machine) else ["Without CPUs it has no DRAM: the memory pool goes off."]
    facts, present_chip = session.facts(), session.draft().supernode.chip
    if (chip := machines.fitting_chip(machine, facts, present_chip)) != present_chip:
        dies_text = numbered(machine.dies_per_npu, "die")
        notes.append(
            f"Its NPUs have {dies_text} each: the chip becomes {load_chip(facts, chip).title}."
        )
    link_counts = Counter(link_end for *ends, _ in machine.links for link_end in ends)
    switches = [name for name, attrs in machine.vertices if attrs["kind"] == "switch"]
    if switches:  # a name with a typing error is one, and has few cables
        listed_names = first_few(sorted(switches, key=link_counts.__getitem__))
        notes.append(f"Switches, as names of no other kind: {plain(listed_names)}.")
    help_texts = {"Links": "Each direction counts."}
    return Preview(f"**{plain(machine.name)}**", figures, notes, help_texts)


def _draw_routing_choice(machine: ImportedMachine) -> ImportedMachine:
    """Draw the choice of an imported machine's routing (ROUTINGS); returns the machine with it."""
    routing = st.selectbox(
        "Routing", list(ROUTINGS), index=list(ROUTINGS).index(machine.routing),
        format_func=lambda name: ROUTINGS[name], key=f"routing:{machine.digest}",
        help="Adaptive routing balances all traffic over its paths to keep the fullest link low. "
        "Weighted ECMP splits each pair by the capacity of its paths, whatever else is under way. "
        "Hashed, each flow stays on one path, and some paths get more flows than others.",
    )  # fmt: skip
    return machine.with_routing(str(routing))


def _with_machine(draft: Scenario, machine: ImportedMachine) -> Scenario:
    """The draft on an imported machine, with a chip that fits it and without edits of the fabric.
    If it has no CPUs, the memory pool is off."""
    chip = machines.fitting_chip(machine, session.facts(), draft.supernode.chip)
    changes: dict[str, Any] = {"supernode.machine": machine.digest, "supernode.chip": chip}
    changes["supernode.edits"] = []
    if not _has_cpus(machine):
        changes["memory_pool.enabled"] = False
    return with_overrides(draft, changes)


def _has_cpus(machine: ImportedMachine) -> bool:
    """Whether an imported machine has CPUs, whose DRAM a memory pool needs."""
    return any(attributes["kind"] == "cpu" for _, attributes in machine.vertices)


def draw_machine_upload() -> None:
    """Draw the draft's imported machine, and offer a deployment of its size."""
    draft = session.draft()
    draw_upload(MACHINES)
    if not draft.supernode.imported or not (all_npus := npus_of(draft.supernode)):
        return
    try:
        usable_npus = usable_npu_count(draft, build_fabric(draft.supernode, session.facts()))
        fitted_draft = machines.fit_to_npus(draft, usable_npus)
    except (SpecError, HardwareError) as error:
        st.caption(f":material/info: No deployment of this kind fits: {sentence(str(error))}")
        return
    used_npus, fitted_npus = npus_used(draft), npus_used(fitted_draft)
    if used_npus > usable_npus or fitted_npus > used_npus:
        st.button(
            f"Fit the deployment: {fitted_npus:,} of its {numbered(all_npus, 'NPU')} instead of "
            f"{used_npus:,}",
            icon=":material/fit_screen:", key="fit-deployment",
            on_click=session.set_draft, args=(fitted_draft,),
            help="Each pool keeps its part of the NPUs. Decode instances change their size, "
            "prefill and colocated instances their number.",
        )  # fmt: skip


MACHINES = Import(
    noun="machine", plural="machines", says="The machine of **{}**",
    label="A cable list or a graph", help="Dies are called die NODE.NPU.DIE. A cable list, "
    "node-link JSON and other forms of graphs are distinguished by content.",
    row_label=lambda row: f"{row.name} ({numbered(row.about['npus'], 'NPU')})",
    preview=_preview_machine, put_into=_with_machine, draw_options=_draw_routing_choice,
)  # fmt: skip
