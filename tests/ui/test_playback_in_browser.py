"""Playback in a real browser: frames in time, a view that stays, keyboard, phone, and the dip.

The last test is the whole way: a link edited, a fault injected, a run, its playback and the dip.
"""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browsing import place_of, rest, until
from tests.draws import some
from tests.ui.playback_run import done_broken
from tests.ui.stored_runs import done, scenario
from twin.lab.library import preset
from twin.lab.share import links
from twin.lab.store import open_store

pytestmark = pytest.mark.browser
FRAME_MS = 100
RUN_MS = 600_000  # the first start on a machine compiles the engine
WRITTEN = """window.written = new Set()
const pen = CanvasRenderingContext2D.prototype, write = pen.fillText
pen.fillText = function (text, ...at) {
  window.written.add(text)
  return write.call(this, text, ...at)
}
"""  # every text that a canvas shows


@pytest.fixture(scope="module")
def run(app_url, served_db):
    """The made-up run in the served dashboard's own store."""
    store = open_store(served_db)
    try:
        return done_broken(store)
    finally:
        store.close()


@pytest.fixture
def page(page):
    """A page that moves."""
    page.emulate_media(reduced_motion="no-preference")
    return page


@pytest.fixture(scope="module")
def visited(visits, app_url, run):
    """The run's playback on a page that two tests use one after the other."""
    page = visits.new_page()
    page.emulate_media(reduced_motion="no-preference")
    player(page, f"{app_url}/playback?run={run}")
    yield page
    page.close()


def player(page, address):
    page.goto(address)
    found = page.locator("#player[data-draw]")
    found.wait_for()
    return found


def data(found):
    return found.evaluate("e => ({...e.dataset})")


def at(found, window):
    expect(found).to_have_attribute("data-window", str(window))
    return data(found)


def values(found):
    return json.loads(data(found)["values"])


def test_a_frame_costs_less_than_a_tenth_of_a_second_and_playing_ends(visited):
    page, found = visited, visited.locator("#player[data-draw]")
    page.locator("#speed").select_option("8")
    page.locator("#play").click()
    expect(found).to_have_attribute("data-playing", "true")
    expect(found).to_have_attribute("data-playing", "false")  # it ends by itself
    said = data(found)
    assert said["window"] == "239"
    assert int(said["draw"]) > 20
    assert float(said["mean"]) < FRAME_MS


def test_recolouring_keeps_zoom_and_selection_and_the_address_remembers(page, app_url, run):
    found = player(page, f"{app_url}/playback?run={run}&at=30")
    page.locator("#larger").click()
    canvas = page.locator("#fabric")
    canvas.click(position=place_of(canvas, "node 6"))
    before = data(found)
    assert before["selection"] == "node 6"
    assert int(before["curves"]) == 7
    page.locator("#plane").select_option("ub")
    page.locator("#traffic").select_option("experts")
    page.locator("#after").click()
    after = at(found, 61)
    assert (after["zoom"], after["selection"]) == (before["zoom"], "node 6")
    page.wait_for_url(re.compile("at=30.5&see=node"))
    page.reload()
    found = page.locator("#player[data-draw]")
    found.wait_for()
    assert (data(found)["window"], data(found)["selection"]) == ("61", "node 6")


def test_the_keyboard_finds_the_dip(page, app_url, run):
    found = player(page, f"{app_url}/playback?run={run}&at=55")
    page.locator("#fabric").focus()
    assert data(found)["down"] == ""
    before = values(found)["Output"]
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    assert at(found, 130)["down"] == "decode 0"
    assert values(found)["Output"] < 0.5 * before
    page.keyboard.press("End")
    at(found, 239)
    page.keyboard.press("Home")
    at(found, 0)
    page.keyboard.press("ArrowUp")
    assert data(found)["selection"] == "decode 0"
    page.keyboard.press("Escape")
    assert data(found)["selection"] == ""
    page.keyboard.press("Space")
    expect(found).to_have_attribute("data-playing", "true")


def test_a_wrong_name_is_said_and_a_right_one_selected(visited):
    page, found = visited, visited.locator("#player[data-draw]")
    page.locator("#search").fill("node 400")
    page.locator("#search").press("Enter")
    page.get_by_text("Nothing is named “node 400”").first.wait_for()
    page.locator("#search").fill("L2 3.4")
    page.locator("#search").press("Enter")
    assert data(found)["selection"] == "L2 3.4"


def test_requests_at_decode_join_and_those_at_prefill_wait(visited):
    for name, word in (("decode 0", " to join · "), ("prefill 0", " waiting · ")):
        visited.locator("#search").fill(name)
        visited.locator("#search").press("Enter")
        expect(visited.get_by_text(word).first).to_be_visible()


def test_a_player_without_room_goes_on_and_fails_in_nothing(visited):
    """As while its page is left: what is hidden has no width."""
    page, found, failures = visited, visited.locator("#player[data-draw]"), []
    page.on("pageerror", lambda error: failures.append(str(error)))
    before = int(data(found)["window"])
    found.evaluate("player => player.style.display = 'none'")
    for button in ("#before", "#before", "#after"):
        page.locator(button).evaluate("button => button.click()")
        page.evaluate("() => new Promise(requestAnimationFrame)")
    found.evaluate("player => player.style.display = ''")
    assert at(found, before - 1)["window"] and failures == []


@pytest.mark.parametrize("scheme", some(["dark"], "light"))
def test_playback_fits_a_phone_and_asks_nobody_else(page, app_url, run, scheme):
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=scheme)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    player(page, f"{app_url}/playback?run={run}&at=65")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    host = app_url.split("//")[1]
    assert [u for u in asked if f"//{host}/" not in u and not u.startswith("data:")] == []


def test_the_picture_of_start_has_a_legend_and_a_number_on_every_node(page, app_url):
    page.add_init_script(WRITTEN)
    page.set_viewport_size({"width": 1440, "height": 1000})
    player(page, app_url)
    expect(page.locator("#player #legend")).to_contain_text(re.compile("prefill.*decode.*idle"))
    expect(page.locator("#player #text")).not_to_contain_text(
        "curves"
    )  # there are none on this page
    assert {str(node) for node in range(48)} <= set(page.evaluate("[...window.written]"))


def test_a_link_is_edited_a_fault_injected_the_run_played_back_and_the_dip_found(page, app_url):
    page.goto(f"{app_url}/supernode")
    edit_a_link(page)
    page.get_by_role("link", name="Deployment").first.click()
    page.get_by_role("heading", name="Deployment", level=1).first.wait_for()
    rest(page)
    page.get_by_test_id("stMain").get_by_role("radio", name="Faults", exact=True).click()
    rest(page)
    page.get_by_role("button", name="Typical faults").click()
    page.get_by_role("button", name="A die of decode 0", exact=True).click()
    page.get_by_text("2 changes").first.wait_for()
    page.get_by_role("button", name=re.compile("^Run .* of traffic")).click()
    page.wait_for_url("**/run?run=*")
    page.get_by_text(re.compile(r"All \d+ laws held")).first.wait_for(timeout=RUN_MS)
    page.get_by_test_id("stMain").get_by_role("radio", name="Faults", exact=True).click()
    page.get_by_text(re.compile("was out of service for")).first.wait_for()
    page.get_by_role("link", name="Watch it").first.click()
    found = page.locator("#player[data-draw]")
    found.wait_for()
    assert data(found)["selection"] == "decode 0"
    page.locator("#before").click()
    page.locator("#before").click()
    before = values(found)
    assert before["decode 0: in service"] == 100
    for _ in range(4):
        page.locator("#after").click()
    dip = values(found)
    assert data(found)["down"] == "decode 0"
    assert dip["Output"] < 0.5 * before["Output"]


def edit_a_link(page):
    """One die's link at half its capacity, in the picture."""
    canvas = page.locator("canvas#canvas[data-draw]")
    canvas.wait_for()
    page.get_by_text("Rates are for traffic").first.wait_for()  # what stands last has come
    rest(page)
    search = page.get_by_label("Find an element by its name")
    search.fill("node 3")
    search.press("Enter")
    expect(canvas).to_have_attribute("data-view", "node 3")
    for name, keys in (("die 3.0.0", []), ("L1 3.2", ["Shift"])):
        canvas.click(position=place_of(canvas, name), modifiers=keys)
    page.get_by_role("button", name="Only their link").click()
    tools = page.get_by_role("toolbar", name="Change what is selected")
    tools.get_by_role("button", name="Set").first.click()
    page.get_by_text("1 change").first.wait_for()


def test_the_name_of_a_run_wraps_on_a_phone_where_it_was_cut(app_url, served_db, page):
    name = "A smaller supernode: 24 nodes, 57.14 requests/s, a share that changes"
    store = open_store(served_db)
    try:
        done(store, scenario(name))
    finally:
        store.close()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/playback")
    words = page.get_by_test_id("stMain").locator("p:visible", has_text=name)
    expect(words).to_be_visible()
    rest(page)
    box = words.bounding_box()
    assert box["x"] + box["width"] <= 390 and box["height"] > 30  # two lines


def test_a_network_for_two_planes_is_called_by_both_of_them(page, app_url):
    """Its box had room for "RDMA" alone."""
    page.add_init_script(WRITTEN)
    page.goto(f"{app_url}{links.draft_url(preset('unified-plane'), 'supernode')}")
    page.locator("canvas[data-draw]").first.wait_for()
    until(lambda: page.evaluate("window.written.has('RDMA and VPC')"))
