"""A scenario in a few words with units; what a varied scenario is called. Draws nothing."""

from collections.abc import Iterable

from twin.hardware.imported import npus_of
from twin.lab.sweep.compare import changed_fields
from twin.metrics.measures import numbered
from twin.scenario import Scenario, npus_used, pools, sharing_pool, value_of
from twin.ui import fields
from twin.ui.fields import choice_label, field_of, text_of

WORDS = ("name", "question", "source")
ARRIVALS, TRACE_NAME = "workload.arrivals", "workload.trace.name"
BETWEEN = " · "  # a preset's name and the change
NAME_MOST = 80
QUESTION_MOST = 600  # characters, as the field says


def npus_text(s: Scenario) -> str:
    """NPUs that instances use, and NPUs of the machine, as text: '256 of 384 NPUs'."""
    npu_count = npus_of(s.supernode)
    used_text = f"{npus_used(s):,} of " if npu_count else ""
    return used_text + numbered(npu_count or npus_used(s), "NPU")


def idle_npus(s: Scenario) -> int:
    """NPUs of the machine that no instance uses."""
    return max(npus_of(s.supernode) - npus_used(s), 0)


def traffic_text(s: Scenario) -> str:
    """Rate of requests as text: '60 req/s', '832 in flight', or the trace's name."""
    workload = s.workload
    if workload.arrivals == "trace":
        return f"trace {workload.trace.name}" if workload.trace.name else "a recorded trace"
    if workload.arrivals == "closed_loop":
        return f"{workload.concurrency:,} in flight"
    return f"{workload.rate_req_per_s:,.6g} req/s"


def lengths_text(s: Scenario) -> str:
    """Lengths of requests as text: '4,096 → 512 tokens', or the distribution's name."""
    workload = s.workload
    if workload.arrivals == "trace":
        return "as recorded"
    tokens_text = f"{workload.input_tokens:,} → {workload.output_tokens:,} tokens"
    if workload.lengths == "fixed":
        return tokens_text
    if workload.lengths == "range":
        return f"{100 * workload.shortest:.3g} to 100 % of {tokens_text}"
    return choice_label("workload.lengths", workload.lengths)


def reuse_text(s: Scenario) -> str:
    """What prompts have in common, as text: '25 % shared', 'in sessions'; '' if nothing."""
    workload = s.workload
    if workload.arrivals == "trace" or workload.prefix == "none":
        return ""
    shared_text = f"{100 * workload.shared_fraction:.3g} % shared"
    return shared_text if workload.prefix == "shared" else "in sessions"


def pool_npus(s: Scenario) -> tuple[str, str]:
    """(label, counts) of the NPUs of each pool: ('Prefill : decode NPUs', '96 : 160')."""
    separator = " on " if sharing_pool(s) else " : "
    roles, npu_texts = zip(*((role, f"{instances * npus:,}") for role, instances, npus in pools(s)),
                           strict=True)  # fmt: skip
    return f"{separator.join(roles).capitalize()} NPUs", separator.join(npu_texts)


def first_model_note(s: Scenario) -> str:
    """Sentence that a formula is of the first of several models; '' where there is one model."""
    if not s.models:
        return ""
    name = text_of(s.deployment.model, "deployment.model")
    return f"Of {name}, the first of {1 + len(s.models)} models. A run has figures of each."


def card_line(s: Scenario) -> str:
    """A scenario in one line: traffic, lengths, shared prefixes and NPUs by pool."""
    if s.models:
        return f"{1 + len(s.models)} models · {numbered(npus_used(s), 'NPU')}"
    (_, instances, npus), *other_pools = pools(s)
    used_text = f"{pool_npus(s)[1]} NPUs" if other_pools else numbered(instances * npus, "NPU")
    return " · ".join(filter(None, (traffic_text(s), lengths_text(s), reuse_text(s), used_text)))


def remaining_text(seconds: float) -> str:
    """A remaining wall time as text, roughly rounded.

    >>> remaining_text(0.3), remaining_text(47), remaining_text(141), remaining_text(700)
    ('1 s', '50 s', '2.5 min', '12 min')
    """
    rounding_from_s = {600: 60, 60: 30, 20: 10, 0: 1}  # from so many seconds on
    rounding_s = next(step_s for least_s, step_s in rounding_from_s.items() if seconds >= least_s)
    return duration_text(max(1, rounding_s * round(seconds / rounding_s)))


def duration_text(seconds: float) -> str:
    """A simulated time as text, in the unit a person would use.

    >>> duration_text(45), duration_text(120), duration_text(5400), duration_text(86_400)
    ('45 s', '2 min', '90 min', '24 h')
    """
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit_s or seconds == unit_s:
            return f"{seconds / unit_s:,.3g} {unit}"
    return f"{seconds:,.4g} s"


def age_text(seconds: float) -> str:
    """How long ago something was, as text, roughly.

    >>> age_text(20), age_text(150), age_text(7300), age_text(1_000_000)
    ('just now', '2 min ago', '2 h ago', '11 days ago')
    """
    if seconds >= 86_400.0:
        return f"{numbered(int(seconds // 86_400.0), 'day')} ago"
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)} {unit} ago"
    return "just now"


def differ_in_words_only(scenario: Scenario, other: Scenario) -> bool:
    """Whether two scenarios differ only in name, question and source, or not at all."""
    return changed_fields(scenario, other).keys() <= {*WORDS}


def name_draft(draft: Scenario, origin: Scenario) -> Scenario:
    """The draft with a new name and question made of its changes from `origin`, if it has changes
    and still has the origin's name."""
    paths = [path for path in changed_fields(origin, draft) if path not in WORDS]
    if draft.name != origin.name or not paths:
        return draft
    form_paths = [p for p in paths if field_of(p).group or p in fields.LISTS or p == TRACE_NAME]
    list_order = list(fields.LISTS)  # those that name a run come first, times last
    form_paths = sorted(
        form_paths or paths,
        key=lambda path: list_order.index(path) if path in list_order else 2 if "." in path else 3,
    )
    first_change, *other_changes = dict.fromkeys(_change_text(path, draft) for path in form_paths)
    more_text = f" +{len(other_changes)}" if other_changes else ""
    name = truncated(f"{draft.name}{BETWEEN}{first_change}", NAME_MOST - len(more_text)) + more_text
    these_text = "these changes" if other_changes else "this change"
    question = f"{draft.name} with {these_text}: {', '.join([first_change, *other_changes])}."
    return draft.model_copy(update={"name": name, "question": truncated(question, QUESTION_MOST)})


def _change_text(path: str, draft: Scenario) -> str:
    """A changed field and its value in the draft, as text: 'Request rate 80 req/s'."""
    value = value_of(draft, path)
    if path in (ARRIVALS, TRACE_NAME) and draft.workload.arrivals == "trace":
        return traffic_text(draft)
    if path in fields.LISTS:
        return fields.rows_in_words(path, value, 1)
    field = field_of(path)
    return f"{field.label} {text_of(value, path)} {field.unit_after_label}".rstrip()


def truncated(text: str, length_max: int) -> str:
    """The text; if it is longer than `length_max`, it is cut to that length and ends with ….

    >>> truncated("Price of an NPU-hour 2 per hour", 24)
    'Price of an NPU-hour 2…'
    """
    return text if len(text) <= length_max else f"{text[: length_max - 1].rstrip()}…"


def draft_and_origin(scenario: Scenario, presets: Iterable[Scenario]) -> tuple[Scenario, Scenario]:
    """(draft for a stored scenario, scenario with which the draft is compared). If the scenario's
    name is that of a changed preset, the draft gets the preset's name and is compared with the
    preset. Otherwise both are the scenario."""
    for preset in presets:
        if scenario.name.startswith(preset.name + BETWEEN):
            draft = scenario.model_copy(update={"name": preset.name, "question": preset.question})
            if name_draft(draft, preset).name == scenario.name:
                return draft, preset
    return scenario, scenario
