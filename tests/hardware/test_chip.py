"""The chip is its data file, per die, in SI units."""

import pytest

from twin.hardware.chip import HardwareError, load_chip
from twin.lab.library import load_facts

FACTS = load_facts()


def test_ascend_910c_is_the_papers_package():
    chip = load_chip(FACTS, "ascend-910c")
    assert (chip.dies_per_npu, chip.cube_cores, chip.vector_cores) == (2, 24, 48)
    assert chip.hbm_bytes_per_die * chip.dies_per_npu == 128e9
    assert chip.hbm_bytes_per_s * chip.dies_per_npu == 3.2e12
    assert chip.cross_die_bytes_per_s == 270e9
    assert chip.flops["int8"] == 2 * chip.flops["fp16"]


def test_a_format_the_chip_lacks_is_refused_with_what_it_has():
    with pytest.raises(HardwareError, match=r"bf16, fp16, int8, not fp8"):
        load_chip(FACTS, "ascend-910c").peak("fp8")
    with pytest.raises(HardwareError, match=r"int8, not fp8, which fp4 needs: choose"):
        load_chip(FACTS, "ascend-910c").peak("fp8", "fp4")


def test_an_unknown_chip_is_refused_with_the_known_ones():
    with pytest.raises(HardwareError, match="take one of ascend-910b, .*ascend-910c"):
        load_chip(FACTS, "abacus")


@pytest.mark.parametrize("name", FACTS.names("chips"))
def test_every_chip_loads_and_is_plausible(name):
    chip = load_chip(FACTS, name)
    assert chip.peak("bf16") > 1e14
    assert 1e10 < chip.hbm_bytes_per_die < 1e12
    assert (chip.cross_die_bytes_per_s > 0) == (chip.dies_per_npu > 1)
