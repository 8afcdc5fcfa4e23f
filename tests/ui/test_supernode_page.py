"""The Supernode page in a real browser: picture, zoom, keys, search, edits, undo, small screen."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import place_of, rest
from twin.lab.library import preset
from twin.lab.share.links import draft_url

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def visited(visits, app_url: str):
    """A page that several tests use one after the other."""
    page = visits.new_page()
    yield opened(page, app_url)
    page.close()


@pytest.fixture
def canvas(visited):
    """Its picture, showing the whole machine as it was built, nothing selected."""
    visited.focus()
    visited.page.keyboard.press("0")
    says(visited, "view", "machine")
    visited.page.keyboard.press("Escape")
    says(visited, "selection", "")
    says(visited, "edits", "0")
    return visited


@pytest.fixture
def page(canvas) -> Page:
    return canvas.page


@pytest.fixture(scope="module")
def other(visits, app_url: str):
    """The picture on a second page, for tests that leave a page as the others do not want it."""
    page = visits.new_page()
    yield opened(page, app_url)
    page.close()


def opened(page: Page, app_url: str):
    page.goto(f"{app_url}/supernode")
    found = page.locator("canvas#canvas[data-draw]")
    expect(found).to_have_attribute("data-view", "machine")
    # What stands last has come: nothing moves any more.
    expect(page.get_by_text("Rates are for traffic").first).to_be_visible()
    rest(page)
    return found


def says(canvas, name, value):
    expect(canvas).to_have_attribute(f"data-{name}", value)


def find(page, name):
    search = page.get_by_label("Find an element by its name")
    search.fill(name)
    search.press("Enter")


def metric(page: Page, label: str):
    """The figure of a tile."""
    tile = page.get_by_test_id("stMetric").filter(has_text=re.compile(f"^{label}"))
    return tile.get_by_test_id("stMetricValue")


def set_ports(page: Page, value: str):
    """Type the ports of an L2 switch chip."""
    field = page.get_by_role("spinbutton", name="Ports of an L2 switch")
    field.fill(value)
    field.press("Enter")


def test_the_picture_opens_into_a_node_and_keeps_its_view(page, canvas):
    says(canvas, "boxes", str(2226 + 12 + 48 + 384 + 7))
    canvas.click(position=place_of(canvas, "node 20"))
    says(canvas, "selection", "node 20")
    page.get_by_role("button", name="Zoom to node 20").click()
    says(canvas, "view", "node 20")
    canvas.click(position=place_of(canvas, "die 20.3.1"))
    says(canvas, "links", str(7 + 1 + 1))  # the L1 chips, the sibling die, the NIC
    # A changed machine redraws the same view.
    npus = metric(page, "NPUs")
    nodes = page.get_by_role("spinbutton", name="Nodes", exact=True)
    nodes.fill("32")
    nodes.press("Enter")
    expect(npus).to_have_text("256")
    says(canvas, "view", "node 20")
    says(canvas, "selection", "die 20.3.1")
    page.get_by_role("button", name="undo icon").click()
    expect(npus).to_have_text("384")


def test_every_chip_is_found_by_its_name(page, canvas):
    for typed, name, view, links in (
        ("npu-20-1", "NPU 20.1", "node 20", 7 + 1),
        ("die 3.0.1", "die 3.0.1", "node 3", 9),
        ("CPU 5.0", "CPU 5.0", "node 5", 7 + 1),
        ("L2 3.12", "L2 3.12", "sub-plane 3", 48),
        ("node 7", "node 7", "node 7", None),
    ):
        find(page, typed)
        says(canvas, "selection", name)
        says(canvas, "view", view)
        if links is not None:
            says(canvas, "links", str(links))
    find(page, "NPU 99.1")
    expect(page.get_by_text("No element is named “NPU 99.1”").first).to_be_visible()


def test_the_picture_is_worked_by_keys_alone(page, canvas):
    canvas.focus()
    page.keyboard.press("ArrowRight")
    says(canvas, "selection", "node 0")
    page.keyboard.press("ArrowRight")
    says(canvas, "selection", "node 4")
    page.keyboard.press("ArrowDown")
    says(canvas, "selection", "node 5")
    page.keyboard.press("Enter")
    says(canvas, "view", "node 5")
    says(canvas, "selection", "NPU 5.0")
    page.keyboard.press("Shift+ArrowRight")
    says(canvas, "chosen", "2")
    page.keyboard.press("Escape")
    says(canvas, "view", "rack 1")
    page.keyboard.press("0")
    says(canvas, "view", "machine")
    page.keyboard.press("Escape")
    says(canvas, "selection", "")


def test_a_machine_that_cannot_be_wired_says_why(other):
    page = other.page
    page.get_by_role("tab", name="More fields", exact=True).click()
    set_ports(page, "32")
    expect(
        page.get_by_text(re.compile("nodes 32 to 47 could not be reached")).first
    ).to_be_visible()
    set_ports(page, "48")
    expect(page.get_by_text("The picture shows the last machine")).to_have_count(0)


def test_a_small_dark_screen_shows_all_without_sideways_scrolling(visits, app_url):
    page = visits.new_page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    canvas = opened(page, app_url)
    assert canvas.bounding_box()["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    canvas.click(position=place_of(canvas, "node 47"))
    says(canvas, "selection", "node 47")
    page.get_by_role("button", name="Several").click()
    canvas.click(position=place_of(canvas, "node 46"))
    says(canvas, "chosen", "2")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    bar = page.get_by_role("toolbar", name="Change what is selected").bounding_box()
    assert bar["x"] >= 0
    assert bar["x"] + bar["width"] <= 390
    page.close()


def test_a_link_is_edited_in_the_picture_priced_and_undone(page, canvas):
    rate = metric(page, "All-to-all")
    expect(rate).to_have_text("133 GB/s")
    find(page, "node 20")
    says(canvas, "view", "node 20")
    canvas.click(position=place_of(canvas, "die 20.3.1"))
    canvas.click(position=place_of(canvas, "L1 20.2"), modifiers=["Shift"])
    says(canvas, "chosen", "2")
    page.get_by_role("button", name="Only their link").click()
    page.get_by_label("Capacity").fill("10")
    page.keyboard.press("Enter")
    says(canvas, "edits", "1")
    expect(rate).to_have_text("115.9 GB/s")
    says(canvas, "view", "node 20")  # the view, the zoom and the selection stay
    says(canvas, "chosen", "2")
    canvas.focus()
    page.keyboard.press("Control+z")
    says(canvas, "edits", "0")
    expect(rate).to_have_text("133 GB/s")
    page.keyboard.press("Control+Shift+z")
    says(canvas, "edits", "1")
    says(canvas, "view", "node 20")
    page.keyboard.press("Control+z")
    says(canvas, "edits", "0")


def test_many_nodes_are_selected_by_a_rectangle_and_edited_by_keys(page, canvas):
    canvas.scroll_into_view_if_needed()
    first, last = place_of(canvas, "node 33"), place_of(canvas, "node 38")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + first["x"], box["y"] + first["y"])
    page.mouse.down()
    page.mouse.move(box["x"] + last["x"], box["y"] + last["y"], steps=4)
    page.mouse.up()
    says(canvas, "chosen", "4")
    canvas.focus()
    marked = canvas.evaluate(
        """(canvas) => {
            canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Delete" }))
            return canvas.dataset.pending
        }"""
    )
    assert marked == "4"  # before the server knows
    expect(canvas).to_have_attribute("data-took", re.compile(r"\d"))
    says(canvas, "edits", "4")
    says(canvas, "pending", "0")
    page.keyboard.press("r")
    says(canvas, "edits", "0")
    page.keyboard.press("Escape")
    says(canvas, "chosen", "0")


def test_load_colours_the_picture_and_fills_the_matrix(other):
    canvas, page = other, other.page
    page.locator("#colour").select_option("experts")
    says(canvas, "colour", "experts")
    find(page, "node 20")
    expect(page.get_by_text(re.compile("busiest 9[0-9.]+ % of capacity")).first).to_be_visible()
    page.get_by_role("button", name="Load matrix").click()
    matrix = page.locator("canvas#table")
    matrix.click(position=matrix.evaluate("c => c.where(9 * 20 + 3)"))
    says(canvas, "selection", "L1 20.3")


def test_an_instance_is_dragged_to_another_node_and_back_by_undo(page, canvas):
    canvas.click(position=place_of(canvas, "node 0"))
    says(canvas, "selection", "node 0")
    first, last = place_of(canvas, "node 0"), place_of(canvas, "node 40")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + first["x"], box["y"] + first["y"])
    page.mouse.down()
    page.mouse.move(box["x"] + last["x"], box["y"] + last["y"], steps=4)
    page.mouse.up()
    expect(page.get_by_text("2 changes").first).to_be_visible()
    find(page, "node 40")
    expect(page.locator("#state")).to_have_text("prefill 0")
    page.keyboard.press("Control+z")
    expect(page.locator("#state")).to_have_text("idle")


def test_npus_that_prefill_shares_with_decode_have_a_colour_of_their_own(visits, app_url):
    page = visits.new_page()
    page.goto(app_url + draft_url(preset("prefill-on-decode"), "supernode"))
    found = page.locator("canvas#canvas[data-draw]")
    expect(page.get_by_text("prefill on decode, 16").first).to_be_visible()
    found.focus()
    find(page, "NPU 3.1")
    expect(page.get_by_text("prefill 1, decode 0").first).to_be_visible()
    page.close()
