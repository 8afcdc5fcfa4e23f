"""Every term of the screens with its meaning: the table that the tooltips read."""

import streamlit as st

from twin.lab.library import terms
from twin.ui.fields import with_labels
from twin.ui.pages import PAGES
from twin.ui.show import plain

st.title(PAGES["glossary"].title, anchor=False)
st.markdown(PAGES["glossary"].about)

search_text = st.text_input(
    "Find a term", placeholder="EPLB, dispatch, MTP …", key="term", max_chars=60,
).strip().lower()  # fmt: skip
matches = [t for t in terms().values() if search_text in f"{t.name} {t.meaning}".lower()]
if matches:
    units = {term.name: f" ({plain(term.unit)})" if term.unit else "" for term in matches}
    rows = [{"Term": f"**{plain(term.name)}**{units[term.name]}",
             "Meaning": with_labels(term.meaning)} for term in matches]  # fmt: skip
    st.table(rows, border="horizontal", hide_index=True)
else:
    st.markdown("No term is called so, and no meaning says it.")
st.caption("A die is not an NPU: every figure says which of the two it counts.")
