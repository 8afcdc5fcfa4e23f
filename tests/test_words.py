"""The glossary's words and no others: in declarations, and in every sentence the code says."""

import ast
import re

from tests.test_house import CORE, ROOT, nodes, sources, where
from twin.lab.library import terms
from twin.scenario import fields

IDENTIFIER = re.compile(r"\b[a-z]+(_[a-z0-9]+)+\b")


def test_the_glossary_is_a_table_of_terms_with_one_sentence_each():
    assert len(terms()) >= 40
    for term in terms().values():
        assert re.fullmatch(r"[A-Z].*[^.]\.", term.meaning), term.name


def test_fields_are_told_in_the_glossarys_words_in_sentence_case_and_without_identifiers():
    for path, known in fields().items():
        words = [known.label, *known.options.values()]
        assert not words_not_used(" ".join([*words, known.help, known.group])), path
        assert all(word and not IDENTIFIER.search(word) for word in words), path
        assert known.label[0].isupper() and not known.label.endswith("."), path
        assert known.help[0].isupper() or known.help[0] == "'", path
        assert known.help.endswith((".", ")", "none", "96")), path


def test_no_sentence_of_the_code_uses_a_word_that_the_glossary_replaces():
    wrong = []
    for path in sources():
        told = docstrings(path)
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                banned = words_not_used(node.value) if node.value not in told else []
                wrong += [f"{where(path, node.lineno)} {word}" for word in banned]
    assert not wrong


def docstrings(path) -> set[str]:
    """Docstrings of a file: prose about the code, where a word may be explained."""
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {
        node.body[0].value.value
        for node in nodes(path)
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None
    }


def test_public_names_of_the_core_are_the_glossarys():
    single = {w.lower() for term in terms().values() for w in term.instead_of if " " not in w}
    wrong = [
        f"{where(path, node.lineno)} {node.name}"
        for path in sources(*CORE)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        and (single - {"replica"}) & set(re.findall(r"[a-z]+", node.name.lower()))
    ]  # fmt: skip
    assert not wrong


def words_not_used(text: str) -> list[str]:
    """Words of a text that the glossary has another term for.

    >>> words_not_used("Promise of a GPU"), words_not_used("SLO of an NPU")
    (['GPU', 'Promise'], [])
    """
    banned = sorted({word for term in terms().values() for word in term.instead_of})
    pattern = rf"\b({'|'.join(map(re.escape, banned))})s?\b"
    return sorted({match[0] for match in re.finditer(pattern, text, re.IGNORECASE)})


PRIVATE = re.compile(r"(?<![a-z])(asked|told|kept|beside|nobody)(?![a-z])", re.IGNORECASE)
MOST_PRIVATE = 121  # goes down only


def test_private_words_get_fewer():
    """The field says requested, reported, stored, concurrent with, none."""
    pages = [ROOT / "README.md", ROOT / "twin/DESIGN.md", *(ROOT / "docs").glob("*.md")]
    texts = [path.read_text("utf-8") for path in [*sources(), *pages]]
    assert sum(len(PRIVATE.findall(text)) for text in texts) <= MOST_PRIVATE


# Read twice in a docstring, each with the words that say it at once.
READ_TWICE = {
    r"\bof those (that|who)\b": "of the requests that",
    r"\bwhat (it|they|he) lacks?\b": "the missing part",
    r"\bwho (comes|goes|is there)\b": "arriving requests",
    r"\bhangs? (on|together)\b": "depends on",
    r"\bon (its|their) way\b": "in transfer",
    r"\bunder way\b": "in progress",
    r"\bthe rooms' own\b": "the names of the errors",
    r"\bas (it|they) stands?\b": "present",
    r"\bgives? way\b": "is replaced",
    r"\bso many of\b": "a number of",
}


def test_docstrings_say_at_once_what_they_mean():
    """Of functions and classes; help of fields, which people read next to a label, is apart."""
    named = re.compile("|".join(READ_TWICE), re.IGNORECASE)
    wrong = [
        f"{where(path, node.lineno)} {node.name}: {match[0]!r}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and (match := named.search(" ".join((ast.get_docstring(node) or "").split())))
    ]
    assert not wrong
