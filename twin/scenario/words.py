"""Fields and refusals in words: what is wrong, where, and what is right; input is quoted, cut."""

import difflib
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from twin.scenario.declaration import DIGEST, PRINTABLE, When
from twin.scenario.fields import field_info, field_unit, fields, option_label, value_text

PATTERNS = {  # by pattern, and by pydantic's type of error
    DIGEST: "should be a SHA-256, 64 hexadecimal digits",
    PRINTABLE: "should hold no control characters",
}
WRONG_KINDS = {
    ("int_type", "int_parsing", "int_from_float"): "should be a whole number",
    ("int_parsing_size",): "should be a whole number of fewer digits",
    ("float_type", "float_parsing"): "should be a number",
    ("finite_number",): "should be a finite number",
    ("bool_type", "bool_parsing"): "should be true or false",
    ("string_type", "string_unicode"): "should be text",
    ("model_type", "model_attributes_type", "dict_type"): "should be a table of fields",
    ("tuple_type",): "should be a list of tables",
    ("string_too_short",): "should have at least {min_length} character(s)",
    ("string_too_long",): "should have at most {max_length} characters",
    ("too_long",): "should have at most {max_length} rows",
}
QUOTED_MOST = 60  # characters of a person's text in a sentence


def quoted(value: Any) -> str:
    """A user's value as Python writes it, cut to `QUOTED_MOST` characters. Numbers get separators.

    >>> quoted("x" * 100)[-5:], quoted(1e6), quoted(10**99)
    ('xx...', '1,000,000', '1e+99')
    """
    try:
        text = f"{value:,}".removesuffix(".0") if type(value) in (int, float) else repr(value)
        text = text if type(value) is not int or len(text) <= QUOTED_MOST else f"{value:g}"
    except (ValueError, OverflowError):  # an integer of hundreds of digits
        text = "a number of too many digits"
    return text if len(text) <= QUOTED_MOST else text[:QUOTED_MOST] + "..."


def numbered(count: int, noun: str) -> str:
    """A count and the noun of the things, whose plural has an s.

    >>> numbered(1, "NPU"), numbered(1536, "NPU")
    ('1 NPU', '1,536 NPUs')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first `most` names as text, and how many more there are.

    >>> first_few(["node 1", "node 2", "node 5"], 2)
    'node 1, node 2 and 1 more'
    """
    more_text = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more_text


def path_text(path: str) -> str:
    """A field's path that a user sent, for a message: unchanged if it has the characters of a path,
    otherwise quoted and cut."""
    is_path = len(path) <= QUOTED_MOST and re.fullmatch(r"[\w.\[\]-]+", path)
    return path if is_path else quoted(path)


def no_field_sentence(path: str) -> str:
    """Sentence that a path is no field of a scenario. It suggests a similar field if there is
    one."""
    similar = _field_like(path) if len(path) <= QUOTED_MOST else ""
    hint_text = f", perhaps {similar}" if similar else ""
    return f"{path_text(path)} is not a field of a scenario{hint_text}"


LIKE = 0.75  # least similarity of two names, 0 to 1


def _field_like(path: str) -> str:
    """A field that the user may have meant by a wrong path; '' if none is similar. First choice is
    a field whose path begins with it, then one of that name in another section, then one with a
    similar section and a similar name."""
    fields_below = [known for known in fields() if known.startswith(path)]
    completions = [known for known in fields_below if "." not in known[len(path) :]]
    section, _, name = path.rpartition(".")
    unlisted_fields = [known for known in fields() if "[]" not in known]
    namesakes = [known for known in unlisted_fields if known.rpartition(".")[2] == name]
    if similar := completions or difflib.get_close_matches(path, namesakes, n=1, cutoff=0.0):
        return similar[0]
    for field_path in difflib.get_close_matches(path, list(fields()), n=3, cutoff=LIKE):
        field_section, _, field_name = field_path.rpartition(".")
        name_pairs = (section, field_section), (name, field_name)
        if all(difflib.SequenceMatcher(None, *pair).ratio() >= LIKE for pair in name_pairs):
            return field_path
    return ""


def problem_sentence(error: ValidationError, within: str = "") -> str:
    """First problem of a validation error as one sentence. within: text before the path of its
    field, such as "supernode.edits[]."."""
    problem_details = error.errors()[0]
    path = within + ".".join(str(key) for key in problem_details["loc"])
    error_type, context = problem_details["type"], problem_details.get("ctx", {})
    message = problem_details["msg"].removeprefix("Value error, ")
    if not path:
        return message if error_type == "value_error" else "a scenario should be a table of fields"
    if error_type == "extra_forbidden":
        return no_field_sentence(path)
    if error_type == "missing":
        return f"{path} is missing: name it"
    if error_type == "invalid_key":
        return f"{path_text(path)} is not a field of a scenario: names are text"
    rule_text = next((words for kinds, words in WRONG_KINDS.items() if error_type in kinds), "")
    if error_type == "string_pattern_mismatch":
        rule_text = PATTERNS[context["pattern"]]
    limit_text = re.sub(
        r"\d{4,}", lambda digits: f"{int(digits[0]):,}", message.removeprefix("Input ")
    )
    unit = "" if error_type == "value_error" else field_unit(path)
    if limit_text.endswith(" 1") and unit.isalpha() and len(unit) > len("ms"):
        unit = {"copies": "copy", "prefixes": "prefix"}.get(unit, unit.removesuffix("s"))
    rule_text = rule_text.format(**context) or f"{limit_text} {unit}".rstrip()
    return f"{path} = {quoted(problem_details['input'])} {rule_text}"


def choice_label(path: str, option: Any) -> str:
    """Label of one option of a field: 'sp_tp_sp' -> 'SP-TP-SP', True -> 'on'."""
    if isinstance(option, bool):
        return "on" if option else "off"
    field = field_info(path)
    if not isinstance(option, str) or (field and not (field.options or field.files)):
        return value_text(option)  # a number, or text as it was typed
    return (field.options.get(option) if field else None) or option_label(option)


def idle_reason(condition: When) -> str:
    """Why a field has no effect where a condition does not hold.

    >>> from twin.scenario.declaration import when, unless
    >>> idle_reason(when("workload.arrivals", "gamma"))
    'only with Arrivals: Gamma'
    >>> idle_reason(unless("deployment.decode.mtp_draft_tokens", 0))
    'not with Draft tokens: 0'
    """
    field = field_info(condition.path)
    label = field.label if field else condition.path
    values_text = " or ".join(choice_label(condition.path, value) for value in condition.values)
    return f"{'not' if condition.negated else 'only'} with {label}: {values_text}"


def condition_text(condition: When) -> str:
    """A condition as text in the notation of scenario files: `workload.arrivals` = gamma."""
    values_text = " or ".join(value_text(value) for value in condition.values)
    return f"{condition.path} {'is not' if condition.negated else '='} {values_text}"


def _label_of_row(label: str, match: re.Match[str]) -> str:
    """A field's label, with the number of its row where the matched path has one."""
    return f"{label} (row {int(match[match.lastindex]) + 1})" if match.lastindex else label


def with_labels_of_fields(refusal: str) -> str:
    """A refusal as one full sentence, in which labels replace the paths of fields.

    >>> with_labels_of_fields("warmup_s = 30 s must end before horizon_s = 20 s")
    'Warm-up = 30 s must end before Simulated time = 20 s.'
    >>> with_labels_of_fields("supernode.edits.2.capacity_factor = -1 should not be negative")
    'Capacity (row 3) = -1 should not be negative.'
    """
    list_paths = {path for path, field in fields().items() if field.kind is tuple}  # plain words
    for path in sorted(fields().keys() - list_paths, key=len, reverse=True):
        pattern = re.escape(path).replace(r"\[\]", r"(?:\[\]|\.(\d+))")
        to_label = partial(_label_of_row, fields()[path].label)
        refusal = re.sub(rf"\b{pattern}\b(?!\.\w)", to_label, refusal)
    return refusal[:1].upper() + refusal[1:].rstrip(".") + "."
