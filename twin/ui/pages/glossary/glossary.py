"""Every term of the screens with its meaning: the table that the tooltips read."""

import streamlit as st

from twin.lab.library import terms
from twin.ui.fields import with_labels
from twin.ui.pages import PAGES
from twin.ui.show import plain

st.title(PAGES["glossary"].title, anchor=False)
st.markdown(PAGES["glossary"].about)

sought = st.text_input(
    "Find a term", placeholder="EPLB, dispatch, MTP …", key="term", max_chars=60,
).strip().lower()  # fmt: skip
known = [t for t in terms().values() if sought in f"{t.name} {t.meaning}".lower()]
if known:
    names = {t.name: f"**{plain(t.name)}**{f' ({plain(t.unit)})' if t.unit else ''}" for t in known}
    rows = [{"Term": names[t.name], "Meaning": with_labels(t.meaning)} for t in known]
    st.table(rows, border="horizontal", hide_index=True)
else:
    st.markdown("No term is called so, and no meaning says it.")
st.caption("A die is not an NPU: every figure says which of the two it counts.")
