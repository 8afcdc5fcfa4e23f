"""The hook table: an extra is a folder, and what it declares is found in its place."""

import importlib

import pytest

from twin import hooks

EXTRA = """
from twin.hooks import Command, Section, TraceFormat

HOOKS = (
    Command("dummy", "twin.extras.dummy.code:command"),
    Section("above", "twin.extras.dummy.code:above", "nowhere"),
    TraceFormat("dummy log", "twin.extras.dummy.code:FORMAT"),
)
"""
CODE = """
FORMAT = "a format"


def command():
    return "said"


def above(what):
    return what.upper()
"""


@pytest.fixture
def dummy(tmp_path, monkeypatch):
    """An extra in a folder of its own, found as those of `twin/extras` are."""
    (tmp_path / "dummy").mkdir()
    (tmp_path / "dummy" / "__init__.py").write_text(EXTRA)
    (tmp_path / "dummy" / "code.py").write_text(CODE)
    folders = importlib.import_module("twin.extras").__path__
    monkeypatch.setattr(
        importlib.import_module("twin.extras"), "__path__", [*folders, str(tmp_path)]
    )
    hooks.extras.cache_clear()
    yield
    hooks.extras.cache_clear()


def test_a_folder_is_an_extra_and_brings_what_it_declares(dummy):
    assert "dummy" in hooks.extras()
    assert hooks.hooks_of(hooks.Command)["dummy"].load()() == "said"
    assert hooks.hooks_of(hooks.TraceFormat)["dummy log"].load() == "a format"
    assert hooks.draw_sections("nowhere", "text") == ["TEXT"]


def test_without_its_folder_nothing_of_an_extra_is_known():
    assert "dummy" not in hooks.extras()
    assert "dummy" not in hooks.hooks_of(hooks.Command)
    assert hooks.draw_sections("nowhere", "text") == []


def test_names_are_told_once():
    for kind in (hooks.Command, hooks.Page, hooks.TraceFormat, hooks.Reader):
        brought = [h.name for own in hooks.extras().values() for h in own if type(h) is kind]
        assert len(brought) == len(set(brought))
