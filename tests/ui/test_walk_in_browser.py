"""Random real clicks over all pages find no exception and no dead end: a few here, 2,000 at length.

Minutes for a few hundred: `make long` takes them all, from several seeds and on a phone's screen.
"""

from pathlib import Path

import pytest

from tests.draws import some
from tests.ui.walk import Walker, fill

pytestmark = pytest.mark.browser


# Seed, clicks, width in pixels.
@pytest.mark.parametrize(
    "way", some([(1, 10, 1280)], (2, 700, 1280), (3, 700, 1280), (4, 600, 390)), ids=str
)
def test_a_walk_comes_to_no_exception_and_no_dead_end(page, app_url, served_db, way):
    seed, clicks, width = way
    fill(served_db)
    log = Path(served_db.removeprefix("sqlite:///")).with_name("server.log")
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(reduced_motion="no-preference")
    seen = Walker(page, app_url, log, seed).walk(clicks)
    assert seen.wrong == []
    assert seen.steps.total() >= clicks
