"""The slides' table, from the machines of data/."""

import pytest

from twin.extras.evidence.page.proof import slide_table
from twin.lab.library import load_facts


def test_the_slides_table_is_made_from_the_machines():
    table = {line["Figure"]: line for line in slide_table(load_facts())}
    memory = table["Memory bandwidth, all, TB/s"]
    for machine in ("NVL72", "CloudMatrix"):
        printed, own = memory[f"{machine}, printed"], memory[f"{machine}, from data/"]
        assert float(own.replace(",", "")) == pytest.approx(
            float(printed.replace(",", "")), rel=0.01
        )
    assert table["Dense FP16 peak, all, PFLOPS"]["CloudMatrix, from data/"] == "288.8"
