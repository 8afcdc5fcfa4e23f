"""Which instances serve and by which policies, with the steady state by formula beside it."""

import streamlit as st

from twin.ui import forms
from twin.ui.fields import DEPLOYMENT
from twin.ui.toolbar import header

header(
    "Deployment",
    "Which instances serve, how they batch, and who decides what goes where.",
    "deployment",
)
form, facts = st.columns([3, 2], gap="large")

with form:
    group = st.segmented_control(
        "Group", list(DEPLOYMENT), default="Pools", required=True,
        label_visibility="collapsed", key="deployment-group", persist_state="session", wrap=True,
    )  # fmt: skip
    forms.group(DEPLOYMENT[group])

with facts, st.container(border=True):
    st.subheader("By formula", anchor=False)
