"""The frame of the dashboard, executed for every visitor it draws; imported, it draws nothing and
makes the server, which gets ready to run as soon as it starts."""

import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

if __name__ != "__main__":
    # The server begins with all imports, of which nothing becomes garbage: to look for some again
    # and again takes a second.
    usual_thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)

import streamlit as st
from starlette.middleware import Middleware
from starlette.routing import Mount

from twin import ui
from twin.api.app import application
from twin.ui import access, forms, link, session, show
from twin.ui.pages import FIRST, PAGES, SECTIONS, load_pages

MARK = Path(ui.__file__).with_name("mark.svg").read_text("utf-8")

if __name__ == "__main__":
    # Before the navigation, which else fetches the page's icon from outside for the tab.
    st.set_page_config("Supernode twin", MARK, layout="wide")
    pages = {
        section: [
            st.Page(page.script, title=page.title, icon=f":material/{page.icon}:", help=page.about,
                    default=page.name == FIRST)
            for page in (PAGES[name] for name in names)
        ]
        for section, names in SECTIONS.items()
    }  # fmt: skip
    shown = st.navigation(pages, position="top")
    st.set_page_config(f"{shown.title} · Supernode twin")
    st.logo(MARK, size="small")
    st.query_params.pop(link.GOES, None)  # drawer.js has read it
    access.require_login()
    show.draw_frame(shown.title, forms.last_search())
    session.open_link()
    shown.run()

else:

    @asynccontextmanager
    async def while_serving(_app: st.App) -> AsyncIterator[None]:
        """Lifespan of the server: loads pages, starts the runner, prepares the first page."""
        load_pages()  # first: threads that import one module at once may find it half made
        from twin.ui.pages.start import parts

        threading.Thread(target=session.start_runner, name="get ready", daemon=True).start()
        parts.prepare_first_page()
        gc.freeze()  # none of this is garbage: it need not be looked through again
        gc.set_threshold(*usual_thresholds)
        yield

    api = application(session.store_of, session.runner, st.get_option("server.allowedHosts"))
    app = st.App(
        __file__,
        lifespan=while_serving,
        routes=[Mount("/api", api)],
        middleware=[Middleware(access.secured_app)],
        on_script_error=access.report_error,
    )
