"""A dashboard without a browser, on an empty store of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests.conftest import PATIENCE_S, ROOT
from twin.ui import live, session


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[None]:
    """Sends every page of this test to an empty store."""
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")
    st.cache_resource.clear()
    monkeypatch.setattr(session, "runner", lambda: None)  # no process waits for work
    monkeypatch.setattr(live, "ready", lambda: False)
    yield session.store()
    session.store().close()
    st.cache_resource.clear()


@pytest.fixture
def app(store) -> AppTest:
    """The dashboard at its start page, not yet run."""
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=PATIENCE_S)


def patient(script: Callable[..., None], **options: Any) -> AppTest:
    """A function's own little app, not yet run, that may be slow."""
    return AppTest.from_function(script, default_timeout=PATIENCE_S, **options)
