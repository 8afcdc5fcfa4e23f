"""The page of terms: all of them, those that are looked for, or one sentence."""

from twin.lab.library import terms
from twin.ui.pages import PAGES


def rows(app):
    return len(app.table[0].value) if app.table else 0


def test_every_term_stands_there_until_one_is_looked_for(app):
    app.run()
    at = app.switch_page(PAGES["glossary"].script).run()
    assert not at.exception and rows(at) == len(terms())
    assert not at.table[0].value["Meaning"].str.contains("`").any()  # fields by their labels
    at = at.text_input(key="term").set_value("eplb").run()
    assert 0 < rows(at) < 10
    at = at.text_input(key="term").set_value("<b>nothing</b>").run()
    assert rows(at) == 0 and any("No term" in m.value for m in at.markdown)
