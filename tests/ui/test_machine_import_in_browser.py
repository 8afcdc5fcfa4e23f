"""In a real browser: a machine is imported from a cable list, drawn, priced, and travels."""

import json

import networkx as nx
import pytest
from playwright.sync_api import TimeoutError, expect

from tests.browsing import rest, until
from tests.conftest import ROOT

pytestmark = pytest.mark.browser
TAKEN_MS = 15_000  # a file that is not taken by then is given once more
CABLES = ROOT / "data/examples/two-boards.csv"


def open_files(page, app_url):
    """The Supernode page, whole, with its File tab open."""
    page.goto(f"{app_url}/supernode")
    page.get_by_role("heading", name="Supernode", level=1).first.wait_for()
    rest(page)
    page.get_by_role("tab", name="File", exact=True).click()
    rest(page)


def test_a_cable_list_becomes_the_machine_of_the_draft_and_a_wrong_one_gets_one_sentence(
    app_url, page, page_elsewhere, tmp_path
):
    open_files(page, app_url)
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("from,to,GB/s,ns,plane\ndie 0.0.0,L1 0.0,-3,100,ub\n")
    page.locator("input[type=file]").last.set_input_files(str(wrong))
    expect(page.get_by_role("alert").filter(has_text="needs a rate of 0 to").first).to_be_visible()
    rest(page)
    page.locator("input[type=file]").last.set_input_files(str(CABLES))
    expect(
        page.get_by_text("Switches, as names of no other kind: board switch").first
    ).to_be_visible()
    expect(page.get_by_text("the chip becomes Ascend 910B (376T)").first).to_be_visible()
    page.get_by_role("button", name="Use this machine").first.click()
    page.wait_for_url("**/supernode?s=*")
    title = page.get_by_text("NPUs in 2 nodes").first
    title.wait_for()
    expect(page.get_by_text("NPUs, 16 dies, ").first).to_contain_text("switches")
    page_elsewhere.goto(page.url)
    expect(page_elsewhere.get_by_text("NPUs in 2 nodes").first).to_be_visible()


def test_a_graph_becomes_the_machine_of_the_draft_and_the_deployment_fits(app_url, page, tmp_path):
    open_files(page, app_url)
    take_from_elsewhere(page, tmp_path)


def take_from_elsewhere(page, tmp_path):
    """A machine of two boards as networkx writes it, used, and a deployment of its size."""
    box = page.locator("input[type=file]")
    graph = nx.Graph()
    for die in ("die 0.0.0", "die 0.0.1", "die 1.0.0", "die 1.0.1"):
        graph.add_edge(die, "switch 0", capacity_bytes_per_s=28e9, latency_s=2e-7, plane="ub")
    for vertex in graph:
        graph.nodes[vertex]["kind"] = vertex.split()[0]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    routing = page.get_by_role("combobox", name="Routing")

    def taken() -> bool:
        """A page that is drawn anew at this moment, for its simulation has come, takes no file."""
        box.set_input_files(str(other))
        try:
            routing.wait_for(timeout=TAKEN_MS)
        except TimeoutError:
            return False
        return True

    until(taken)
    page.get_by_role("button", name="Use this machine").first.click()
    expect(page.get_by_text("2 NPUs in 2 nodes").first).to_be_visible()
    expect(page.get_by_text("balanced over its paths").first).to_be_visible()
    run = page.get_by_role("button", name="Run").and_(page.get_by_role("button", disabled=True))
    expect(run.first).to_be_visible()  # 256 NPUs do not fit on two
    page.get_by_role("button", name="Fit the deployment").click()
    expect(page.get_by_role("button", name="Fit the deployment")).to_have_count(0)
