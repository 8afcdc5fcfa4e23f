"""Columns of what instances put on links that they share."""

from __future__ import annotations

from math import inf

from twin.kernels.buffers import Columns, column


class Traffic(Columns):
    """Flows of instances, the links on which they can meet, and the level of each flow. A flow
    is one class of an instance's traffic, numbered by flows.py. A column is an instance of any
    role."""

    first = column("i8", "classes", "First flow of a class of traffic.", fill=None)
    last = column("i8", "classes", "The one behind its last.", fill=None)
    # As laid out: what a flow may cross.
    start = column("i8", "flows + 1", "First row of a flow in the columns by crossing.")
    way = column("i4", "crossings", "Link that is crossed.")
    whole = column("f8", "crossings", "Part where all is read from one memory server.")
    port = column("i4", "crossings", "Memory server whose port it is, -1: none.")
    # Now: a read crosses the ports of the servers that its batch reads from.
    end = column("i8", "flows", "The row behind a flow's last.", by="traffic")
    links = column("i4", "crossings", "Link that is crossed.", by="traffic")
    parts = column("f8", "crossings", "Share of it that the flow takes alone.", by="traffic")
    server = column("i4", "crossings", "Memory server whose port it is.", by="traffic")
    # Flows under way, link by link, in order.
    link_start = column("i8", "links + 1", "First row of a link.")
    link_end = column("i8", "links", "The row behind its last.", by="levels")
    owners = column("i4", "crossings", "A flow that crosses it.", by="levels")
    owner_parts = column("f8", "crossings", "What it takes alone.", by="levels")
    alone = column("f8", "flows", "Rate without other flows.", unit="B/s", fill=1)
    pace = column(
        "f8", "flows", "Most it takes by itself; 0 of weights that rest.", unit="B/s", fill=inf,
        by="machine",
    )  # fmt: skip
    wish = column("f8", "flows", "Share of `alone` that it takes if it may.", fill=1, by="machine")
    active = column("i1", "flows", "Whether it is under way.", by="traffic")
    most = column("f8", "flows", "Share of `alone` that it would take.", by="levels")
    load = column("f8", "links", "Sum of parts times most.", by="levels")
    level = column("f8", "flows", "Share of `alone` that it gets.", by="levels, traffic")
    held = column("i8", "1", "1 while a flow gets less than it would take.", by="traffic")
    # What has changed since links were last shared.
    noted = column("i4", "flows", "Flows that began or ended.", by="levels")
    is_noted = column("i1", "flows", "Whether it is among them.", by="levels")
    touched = column("i4", "links", "Links that they cross.", by="levels")
    is_touched = column("i1", "links", "Whether it is among them.", by="levels")
    movers = column("i4", "flows", "Flows under way but exchanges, in order.", by="levels")
    # How many are noted, touched, movers; links that are overloaded; links and flows of a group.
    counts = column("i8", "6", "Lengths of lists.", by="levels")
    # Flows that meet, directly or through others, on overloaded links.
    full = column("i1", "links", "Whether it is overloaded.", by="levels")
    group_links = column("i4", "links", "Links of the groups to be shared anew.", by="levels")
    group_flows = column("i4", "flows", "And flows.", by="levels, traffic")
    in_group_links = column("i1", "links", "Whether it is among them.", by="levels")
    in_group_flows = column("i1", "flows", "Whether it is among them.", by="levels")
    near_end = column("i8", "flows", "The row behind its last in `near`.", by="levels")
    near = column("i4", "crossings", "Its overloaded links.", by="levels")
    near_parts = column("f8", "crossings", "And the parts of these.", by="levels")
    levels = column("f8", "4, flows", "Level, by which exchanges there are.", by="levels")
    bound = column("f8", "flows", "Scratch: `most` of those there are.", by="levels")
    stopped = column("i1", "flows", "Scratch of progressive filling.", by="levels")
    rest = column("i4", "links", "Scratch: links not shared yet.", by="levels")
    full_at = column("f8", "links", "Scratch: level at which it is full.", by="levels")
    outdated = column("i1", "links", "Scratch: whether that is out of date.", by="levels")
    scratch = column("f8", "links", "Scratch.", by="levels, streams")
    duty = column("f8", "columns", "Share of time an exchange is on the wire.", by="traffic")
    crowding = column(
        "f8", "columns", "How much longer it takes there; 1 alone.", fill=1, by="traffic"
    )


class Streams(Columns):
    """Bytes in transfer to or from the memory pool, at a rate that other traffic changes. Four rows
    per prefill (or colocated) instance: reads, writes, writes on to the SSD tier, reads from it."""

    flow = column("i8", "streams", "Its number among the flows.", fill=None)
    busy = column("i4", "streams", "Those with bytes to go, in order.", by="streams, traffic")
    is_busy = column("i1", "streams", "Whether it is among them.", by="streams, traffic")
    count = column("i8", "1", "How many these are.", by="streams, traffic")
    left_bytes = column("f8", "streams", "Still to go at `since_s`.", unit="B", by="pool, streams")
    rate = column("f8", "streams", "Pace since then.", unit="B/s", by="pool, streams")
    since_s = column("f8", "streams", "Up to when it has moved.", unit="s", by="pool, streams")
    servers = column("i8", "prefills", "Memory servers of an instance's pool.", by="machine")
    answers = column("i1", "prefills, servers", "It reaches them.", by="machine")
    requested = column("i8", "prefills, servers", "Blocks its batch reads of each.", by="pool")
    hot = column("i4", "prefills", "Server that holds its read back, -1: none.", by="pool")
    even_s = column("f8", "prefills", "End of its read, were servers even.", unit="s", by="pool")
    held_s = column("f8", "prefills", "By how much it came later.", unit="s", by="pool")
