"""The navigation: every page in one section, the parts of what is built one click apart."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT
from twin.ui.pages import BUILD, FIRST, PAGES, SECTIONS


def test_every_page_stands_in_one_section_and_the_first_is_open():
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(PAGES)
    assert SECTIONS[""] == (FIRST, "plan")


@pytest.mark.parametrize("script", [str(ROOT / "app.py"), *(p.script for p in PAGES.values())])
def test_no_page_shows_a_value_by_naming_it(script):
    """Streamlit would draw such a value; .streamlit/config.toml switches that off."""
    tree = ast.parse(Path(script).read_text("utf-8"))
    makers = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = [
        ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, makers)
    ]
    bare = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    assert bare
    for value in bare:
        said = isinstance(value, ast.Constant) and value.value in docstrings
        assert said or isinstance(value, ast.Call | ast.Yield), ast.unparse(value)


@pytest.mark.parametrize("name", SECTIONS[BUILD])
def test_the_parts_of_what_is_built_are_one_click_apart(app, name):
    app.switch_page(PAGES[name].script).run()
    assert not app.exception
    titles = [link.label for link in app.page_link][: len(SECTIONS[BUILD]) - 1]
    assert titles == [PAGES[other].title for other in SECTIONS[BUILD] if other != name]


@pytest.mark.parametrize(
    ("start", "path", "title", "group"),
    [
        ("workload", "deployment.decode.microbatch", "Deployment", "Batching"),
        ("deployment", "slo.tpot_ms", "Workload", None),  # it stands among the first
        ("workload", "seed", "Workload", "Time and seed"),
    ],
)
def test_a_field_is_found_by_its_name_and_shown(app, start, path, title, group):
    app.switch_page(PAGES[start].script).run()
    app.selectbox(key="find-field:0").set_value(path).run()
    assert not app.exception
    assert app.title[0].value == title
    assert app.session_state[f"{PAGES[title.lower()].name}-group"] == group
    generation = app.session_state["generation"]
    assert app.get_by_key(f"field:{path}:{generation}") is not None


def test_no_group_of_pages_is_called_as_a_page():
    assert not set(SECTIONS) & {page.title for page in PAGES.values()}
