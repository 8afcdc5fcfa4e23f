"""GraphML of machines: read as the core reads other graphs, or refused."""

import pytest

from twin.hardware.graph_text import FabricFileError
from twin.hardware.machine_file import read_machine


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<graphml><graph/></graphml>", "The machine has no dies"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><graphml>&b;</graphml>', "DOCTYPE"),
    ],
)
def test_what_is_no_machine_is_told_why(text, sentence):
    with pytest.raises(FabricFileError, match=sentence):
        read_machine(text, "file")
