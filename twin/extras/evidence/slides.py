"""The slides' table of NVL72 and CloudMatrix384, with the same figures made from data/."""

from typing import Any

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.lab.library import RECORD, published_table
from twin.lab.machines import supernode_of

# What the slide prints, of the whole machine and of one accelerator.
LINES = {
    "accelerators": "Accelerators",
    "peak_pflops": "Dense FP16 peak, all, PFLOPS",
    "memory_tb_per_s": "Memory bandwidth, all, TB/s",
    "memory_tb_per_s_each": "Memory bandwidth, each, TB/s",
    "interconnect_tb_per_s": "Scale-up links, both directions, all, TB/s",
    "interconnect_tb_per_s_each": "Scale-up links, both directions, each, TB/s",
}


def machine_figures(entry: dict[str, Any], facts: Facts) -> dict[str, float]:
    """Figures of one machine, by keys of LINES, computed from its recipe as sold and its chip."""
    supernode = supernode_of(entry["machine"], facts)
    chip, npus = load_chip(facts, supernode.chip), supernode.npus
    dies = npus * chip.dies_per_npu
    link_rate = 2.0 * supernode.sub_planes * supernode.ub_link_gb_per_s * 1e9 * dies
    memory_rate = dies * chip.hbm_bytes_per_s
    return {
        "accelerators": float(npus), "peak_pflops": dies * chip.peak("fp16") / 1e15,
        "memory_tb_per_s": memory_rate / 1e12, "memory_tb_per_s_each": memory_rate / npus / 1e12,
        "interconnect_tb_per_s": link_rate / 1e12,
        "interconnect_tb_per_s_each": link_rate / npus / 1e12,
    }  # fmt: skip


def slide_table(facts: Facts) -> list[dict[str, str]]:
    """One row per figure: printed on the slide, and computed from data/, for both machines."""
    entries = published_table(RECORD / "slides.toml")["machine"]
    totals_of = [machine_figures(entry, facts) for entry in entries]
    lines = []
    for key, label in LINES.items():
        line = {"Figure": label}
        for entry, machine_totals in zip(entries, totals_of, strict=True):
            line[f"{entry['name']}, printed"] = f"{entry[key]:,g}"
            line[f"{entry['name']}, from data/"] = f"{float(f'{machine_totals[key]:.4g}'):,g}"
        lines.append(line)
    return lines
