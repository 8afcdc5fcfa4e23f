import re

import pytest

from twin.lab.documents import accepts, field_table, fields, file_map, pages
from twin.lab.library import ROOT
from twin.scenario import field_info


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_pages_say_what_the_code_says_now(page):
    assert page.read_text("utf-8") == pages()[page], "run `make docs`"


def test_every_field_has_help_and_stands_in_the_table():
    table = field_table()
    for path, info in fields():
        assert field_info(path) is not None
        assert info.description, path
        assert f"| `{path}` |" in table


def test_what_a_field_accepts_is_said_in_words():
    said = {path: accepts(info) for path, info in fields()}
    assert said["router.policy"].startswith("round_robin, ")
    assert said["supernode.nodes"] == "1 to 384"
    assert said["memory_pool.enabled"] == "true or false"


def test_the_map_gives_every_file_a_sentence():
    lines = file_map(ROOT).splitlines()[1:-1]
    files = [line for line in lines if line.split()[0].endswith(".py")]
    assert not [line for line in files if not re.search(r"\.py +\S", line)]
