"""The Supernode page says how hashed flows collide, and what that costs."""

import re

import pytest

from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts, preset
from twin.lab.share.links import draft_url
from twin.scenario import with_overrides
from twin.ui.pages import PAGES
from twin.ui.pages.supernode.panels import collisions, hashed_planes, headlines

FACTS = load_facts()


def asked(name, **fields):
    s = with_overrides(preset(name), {f"supernode.{k}": v for k, v in fields.items()})
    return s, build_fabric(s.supernode, FACTS)


def opened(app, scenario):
    app.switch_page(PAGES["supernode"].script)
    app.query_params["s"] = draft_url(scenario).split("s=")[1]
    return app.run()


def test_every_traffic_of_the_plane_has_its_factors_and_the_prices_their_mean():
    s, fabric = asked("kv-over-ub-contrast", ub_routing="hashed")
    assert hashed_planes(fabric) == ["ub"]
    rows = {traffic: found for (traffic, _), found in collisions(s, fabric).items()}
    assert set(rows) == {"Exchange, prefill", "Exchange, decode", "KV transfers", "Pool reads"}
    assert all(1.0 < found.mean <= found.p99 for found in rows.values())
    before, after = (
        {price.label: price.bytes_per_s for price in headlines(*asked("kv-over-ub-contrast", **f))}
        for f in ({"ub_routing": "ecmp"}, {"ub_routing": "hashed"})
    )
    wanted = ["Exchange, decode", "KV transfers", "Pool reads"]
    for label, traffic in zip(before, wanted, strict=True):
        assert before[label] / after[label] == pytest.approx(rows[traffic].mean, rel=1e-3)


def test_nothing_is_said_where_no_plane_hashes(app):
    s, fabric = asked("quickstart")
    assert hashed_planes(fabric) == []
    at = opened(app, s)
    assert "Hashed flows" not in [head.value for head in at.subheader]


def test_the_page_says_mean_p99_and_what_tpot_and_kv_transfers_lose(app):
    s, _ = asked("kv-over-ub-contrast", ub_routing="hashed")
    at = opened(app, s)
    assert not at.exception
    assert "Hashed flows" in [head.value for head in at.subheader]
    said = " ".join(text.value for text in at.markdown)
    found = re.search(r"TPOT is ([\d.]+) ms by formula, and ([\d.]+) ms with an even split; "
                      r"a KV transfer takes ([\d.]+) times as long\.", said)  # fmt: skip
    now, even, longer = (float(part) for part in found.groups())
    assert now > even and longer > 7.0


def test_one_network_without_paths_says_that_transfers_meet_nobody(app):
    s, _ = asked("quickstart", rdma_routing="hashed")
    said = " ".join(text.value for text in opened(app, s).markdown)
    assert "KV transfers meet no other on their paths." in said
