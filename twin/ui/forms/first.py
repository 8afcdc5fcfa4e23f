"""A form as people use it: the fields that matter first, all others one click behind by group."""

from collections.abc import Callable, Mapping

import streamlit as st

from twin.scenario import form_groups
from twin.ui import forms, session
from twin.ui.fields import declared, why_idle

# What people change, in the order in which they think of it; those that apply are shown.
FIRST: dict[str, tuple[str, ...]] = {
    "supernode": (
        "supernode.machine", "supernode.chip", "supernode.nodes", "supernode.supernodes",
        "supernode.ub_link_gb_per_s", "supernode.rdma_gb_per_s_per_npu",
    ),
    "workload": (
        "workload.arrivals", "workload.rate_req_per_s", "workload.concurrency", "workload.lengths",
        "workload.input_tokens", "workload.output_tokens", "workload.prefix",
        "workload.shared_fraction", "workload.follow_up_probability", "slo.ttft_s", "slo.tpot_ms",
        "horizon_s",
    ),
    "deployment": (
        "deployment.model", "deployment.mode", "deployment.prefill.instances",
        "deployment.prefill.npus_per_instance", "deployment.prefill.core_share",
        "deployment.decode.instances", "deployment.decode.npus_per_instance",
        "deployment.colocated.instances", "deployment.colocated.npus_per_instance",
        "deployment.decode.batch_per_npu", "deployment.decode.mtp_draft_tokens",
        "experts.redundant", "router.policy", "memory_pool.enabled",
    ),
}  # fmt: skip


def behind(form: str) -> dict[str, list[str]]:
    """The groups of a form without the fields that stand first; a group of none is left out. One
    that stands first but has no effect now is named in its group, with the reason."""
    draft = session.wished()
    groups = {
        name: [path for path in paths if path not in FIRST[form] or why_idle(path, draft)]
        for name, paths in form_groups(form).items()
    }
    return {name: paths for name, paths in groups.items() if set(paths) - set(FIRST[form])}


def whole(form: str, own: Mapping[str, Callable[[], None]]) -> str | None:
    """Draw a form; returns the group that is open. `own` draws a group in a way of its own."""
    draft = session.wished()
    forms.group(path for path in FIRST[form] if not why_idle(path, draft))
    more = behind(form)
    key = f"{form}-group"
    if path := forms.to_open(form):
        st.session_state[key] = None if path in FIRST[form] else declared(path).group
    if st.session_state.get(key) not in more:
        st.session_state[key] = None
    st.markdown("**More fields**")
    group = st.segmented_control(
        "More fields", list(more), label_visibility="collapsed", key=key,
        persist_state="session", wrap=True,
    )  # fmt: skip
    if group is None:
        return None
    if group in own:
        own[group]()
    else:
        forms.group(more[group])
    return group
