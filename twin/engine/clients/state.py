"""Clients: the prepared stream where clients wait, who comes back when, and whose a request is.

A run whose clients wait for answers or try again makes its rows of requests as they arrive; each
names a turn of the prepared stream. All other runs have their rows beforehand, and here nothing."""

from twin.kernels.buffers import Columns, f8, i1, i4, i8


class Loop(Columns):
    """Clients that send again: a binary heap of times, and the turn of each."""

    due_s = f8("clients", "When a client comes.", "s", by="arrivals, returns")
    turn = i8(
        "clients", "Turn and attempt it comes for; NONE: the next one.", fill=-1,
        by="arrivals, returns",
    )  # fmt: skip
    size = i8("1", "Clients that are due.", by="arrivals, returns")
    expired = i8("2", "Requests whose time-outs were looked at.", by="arrivals")


class Turns(Columns):
    """The prepared stream, one row per turn; empty in runs whose rows are known beforehand."""

    input_tokens = i4("turns", "Length of the prompt.", "tokens", fill=None)
    output_tokens = i4("turns", "Length of the answer.", "tokens", fill=None)
    session = i4("turns", "Conversation.", fill=None)
    following = i4("turns", "The turn that waits for its answer, or NONE.", fill=None)
    pause_s = f8("turns", "Pause before it.", "s", fill=None)
    asked_s = f8("turns", "When it was asked first.", "s", by="arrivals")


class Gate(Columns):
    """Limits of tenants and counts of their requests inside; the last row is for all together."""

    tenant = i1("tenanted", "Whose a turn is.", fill=None)
    priority = f8("tenants", "Higher goes first.", fill=None)
    weight = f8("tenants", "Share of the machine.", fill=None)
    ttft_s = f8("tenants", "TTFT SLO.", "s", fill=None)
    rate = f8("tenants + 1", "Requests let in per second; 0: all.", fill=None)
    most = i8("tenants + 1", "Requests that may be inside; 0: all.", fill=None)
    inside = i8("tenants + 1", "Requests inside.", by="admission, returns")
    tokens = f8("tenants + 1", "Requests that may come at once.", fill=1, by="admission")
    filled_s = f8(
        "tenants + 1", "When that was worked out; full at the start.", "s", fill=-1, by="admission"
    )
    served = f8("tenants", "Tokens served, over its weight.", by="fair")
    waiting = i8("tenants", "Requests that have not begun.", by="fair, returns")
    handed = f8("tenants", "Prompts of those behind the router.", "tokens", by="fair, returns")
    last = i8("1", "The tenant whose request began last.", by="fair")
    reached = f8("tenants", "Scratch of places in a queue.", by="fair")
    wait = i4("1, 2", "List of who may be routed.", fill=-1, by="admission, arrivals, router")
