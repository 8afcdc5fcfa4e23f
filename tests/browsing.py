"""How tests of a browser wait: for what a page comes to, never for a time.

Not with `wait_for_function`: it evaluates text again and again, which our pages' policy allows only
while the first look lasts.
"""

import time
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.conftest import PATIENCE_S

# Resolves once something has been the same for so many frames.
SAME = """(look, frames) => new Promise(done => {
  let last, seen = 0
  const frame = () => {
    const now = JSON.stringify(look())
    seen = now === last ? seen + 1 : 0
    last = now
    seen < frames ? requestAnimationFrame(frame) : done()
  }
  frame()
})"""
FADING = "document.getAnimations().filter(each => each instanceof CSSTransition).length"
SIZES = "document.documentElement.scrollWidth, document.body.innerText.length"
TRIES = 3  # to choose an option or a group
FRAMES = 15  # a quarter of a second where the machine has nothing else to do


def rest(page: Page) -> None:
    """Wait until the script of a page has ended and nothing is left of what it has replaced."""
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    expect(page.locator("[data-stale=true]")).to_have_count(0)


def still(page: Page) -> None:
    """Wait until a page is at rest, has taken its shape, and nothing fades any more."""
    rest(page)
    page.evaluate(f"() => ({SAME})(() => [{FADING}, {SIZES}], {FRAMES})")
    until(lambda: page.evaluate(f"{FADING} === 0"))


def opened_group(page: Page, group: str) -> None:
    """Show a group of a page's fields; a click that a page drawn anew has lost is repeated."""
    chosen = page.get_by_test_id("stMain").get_by_role("radio", name=group, exact=True)
    for _ in range(TRIES):
        still(page)
        chosen.click()
        still(page)
        if chosen.is_checked():
            return
    expect(chosen).to_be_checked()


def choose(page: Page, field: str, option: str) -> None:
    """Take an option of a field; its menu closes when the page scrolls, so that comes first.

    A menu also closes when the focus moves or its list is drawn anew between press and release of
    a click, which then chooses nothing: as a person would, it is opened again.
    """
    box = page.get_by_role("combobox", name=field)
    for _ in range(TRIES):
        box.scroll_into_view_if_needed()
        still(page)
        box.click()
        page.get_by_role("option", name=option).click()
        still(page)
        if option in box.input_value():
            return


def place_of(canvas: Locator, name: str) -> dict[str, float]:
    """Where a picture shows an element, once its camera stands."""
    look = "() => canvas.where(name)"
    canvas.evaluate(f"(canvas, name) => ({SAME})({look}, 3)", name)
    place: dict[str, float] = canvas.evaluate("(canvas, name) => canvas.where(name)", name)
    return place


def until(holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds that no event tells of, for as long as a busy machine may need."""
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.1)


def copied_link(page: Page, press: Callable[[], object]) -> str:
    """Press Copy link: what is in the clipboard once the button has said so, be it for a moment."""
    rest(page)
    page.get_by_role("button", name="Copy link").evaluate(
        """button => { window.said = []
            const look = () => window.said.push(button.innerText)
            new MutationObserver(look).observe(button, {childList: true, subtree: true}) }"""
    )
    press()
    until(lambda: page.evaluate("window.said.some(text => text.includes('Link copied'))"))
    return str(page.evaluate("navigator.clipboard.readText()"))
