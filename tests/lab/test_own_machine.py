"""The example of a chip of one's own is what the twin reads, and the twin runs on it."""

import re
import shutil
import tomllib

from twin.hardware.chip import load_chip
from twin.lab.library import DATA, ROOT, load_facts
from twin.scenario import Scenario, with_overrides
from twin.steady import Priced, predict_with_advice


def test_the_chip_of_the_example_serves_faster_where_memory_binds(tmp_path):
    text = (ROOT / "docs/EXTEND.md").read_text("utf-8")
    example = [e for e in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "data/chips" in e]
    (bandwidth,) = tomllib.loads(example[0]).values()
    folder = shutil.copytree(
        DATA, tmp_path / "data", ignore=shutil.ignore_patterns("*.db*", "artifacts*")
    )
    old = (folder / "chips" / "ascend-910c.toml").read_text("utf-8")
    named = re.search(r"mine.toml, with (.*)", example[0])[1].split(", ")
    assert set(named) <= set(_dotted(tomllib.loads(old)))
    _, table, rest = old.partition("[hbm_bandwidth]")
    mine = old.replace(table + rest.partition("\n[")[0], "[hbm_bandwidth]\n" + "\n".join(
        f"{k} = {v!r}" for k, v in bandwidth.items()) + "\n")  # fmt: skip
    (folder / "chips" / "ascend-mine.toml").write_text(mine, "utf-8")
    facts = load_facts(folder)
    assert load_chip(facts, "ascend-mine").hbm_bytes_per_s == 3.2e12
    asked = {"supernode.chip": "ascend-mine", "deployment.mode": "decode_only"}
    known = with_overrides(Scenario(), asked | {"supernode.chip": "ascend-910c"})
    faster = predict_with_advice(
        Priced(with_overrides(Scenario(), asked), facts)
    ).decode.iteration_s
    assert faster < predict_with_advice(Priced(known, facts)).decode.iteration_s


def _dotted(table, path=""):
    for key, value in table.items():
        if "value" in value:
            yield path + key
        else:
            yield from _dotted(value, f"{path}{key}.")
