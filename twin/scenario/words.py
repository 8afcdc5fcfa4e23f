"""A refusal in a person's words: what is wrong, where, and what would be right."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from twin.scenario.declaration import DIGEST, PRINTABLE

# By pattern, and by pydantic's type of error.
PATTERNS = {
    DIGEST: "should be a SHA-256, 64 hexadecimal digits",
    PRINTABLE: "should hold no control characters",
}
WRONG_KINDS = {
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_parsing_size": "should be a whole number of fewer digits",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a finite number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be text",
    "model_type": "should be a table of fields",
    "model_attributes_type": "should be a table of fields",
    "dict_type": "should be a table of fields",
    "string_unicode": "should be text",
    "tuple_type": "should be a list of tables",
}
WRONG_SIZES = {
    "string_too_short": "should have at least {min_length} character(s)",
    "string_too_long": "should have at most {max_length} characters",
    "too_long": "should have at most {max_length} rows",
}
LONGEST_ECHO = 60  # characters of a wrong value that are said back


def explain(error: ValidationError, unit_of: Callable[[str], str]) -> str:
    """The first problem of a validation error as one sentence a person can act on.

    `unit_of` gives the unit of a field by dotted path.
    """
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{where} is not a field of a scenario"
    if first["type"] == "missing":
        return f"{where} is missing: name it"
    if not where:
        return (
            message if first["type"] == "value_error" else "a scenario should be a table of fields"
        )
    if first["type"] == "invalid_key":
        return f"{where} is not a field of a scenario: names are text"
    given = repr(first["input"])
    if len(given) > LONGEST_ECHO:
        given = given[:LONGEST_ECHO] + "..."
    if first["type"] == "string_pattern_mismatch":
        return f"{where} = {given} {PATTERNS[first['ctx']['pattern']]}"
    if first["type"] in WRONG_KINDS:
        return f"{where} = {given} {WRONG_KINDS[first['type']]}"
    if first["type"] in WRONG_SIZES:
        return f"{where} = {given} {WRONG_SIZES[first['type']].format(**first['ctx'])}"
    unit = unit_of(where)
    bound = message.removeprefix("Input ")
    return f"{where} = {given} {bound}" + (f" {unit}" if unit else "")
