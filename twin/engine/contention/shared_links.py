"""Columns of what instances put on links that they share."""

from math import inf

from twin.kernels.buffers import Columns, f8, i1, i4, i8


class Traffic(Columns):
    """Flows of instances, the links on which they can meet, and the level of each flow. A flow is a
    class of an instance's traffic, numbered by flows.py. A column is an instance of any role."""

    first = i8("classes", "First flow of a class of traffic.", fill=None)
    last = i8("classes", "The one behind its last.", fill=None)
    # As laid out: what a flow may cross.
    start = i8("flows + 1", "First row of a flow in the columns by crossing.")
    way = i4("crossings", "Link that is crossed.")
    whole = f8("crossings", "Part where all is read from one memory server.")
    port = i4("crossings", "Memory server whose port it is, -1: none.")
    # Now: a read crosses the ports of the servers that its batch reads from.
    end = i8("flows", "The row behind a flow's last.", by="traffic")
    links = i4("crossings", "Link that is crossed.", by="traffic")
    parts = f8("crossings", "Share of it that the flow takes alone.", by="traffic")
    server = i4("crossings", "Memory server whose port it is.", by="traffic")
    # Flows under way when links were last shared, link by link, in order.
    link_start = i8("links + 1", "First row of a link.")
    link_end = i8("links", "The row behind its last.", by="levels")
    owners = i4("crossings", "A flow that crosses it.", by="levels")
    owner_parts = f8("crossings", "What it takes alone.", by="levels")
    is_listed = i1("flows", "Whether it is in these lists.", by="levels")
    alone = f8("flows", "Rate without other flows.", "B/s", fill=1, by="traffic")
    pace = f8("flows", "Its own limit; 0: at rest.", "B/s", fill=inf, by="machine, traffic")
    wish = f8("flows", "Share of `alone` that it takes if it may.", fill=1, by="machine, traffic")
    active = i1("flows", "Whether it is under way.", by="traffic")
    most = f8("flows", "Share of `alone` that it would take.", by="levels")
    load = f8("links", "Sum of parts times most.", by="levels")
    level = f8("flows", "Share of `alone` that it gets.", by="levels, traffic")
    held = i8("1", "1 while a flow gets less than it would take.", by="traffic")
    # What has changed since links were last shared.
    noted = i4("flows", "Flows that began or ended.", by="levels")
    is_noted = i1("flows", "Whether it is among them.", by="levels")
    touched = i4("links", "Links that they cross.", by="levels")
    is_touched = i1("links", "Whether it is among them.", by="levels")
    movers = i4("flows", "Flows under way but exchanges, in order.", by="levels")
    # How many are noted, touched, movers; links that are overloaded; links and flows of a group.
    counts = i8("6", "Lengths of lists.", by="levels")
    # Flows that meet, directly or through others, on overloaded links.
    full = i1("links", "Whether it is overloaded.", by="levels")
    group_links = i4("links", "Links of the groups to be shared anew.", by="levels")
    group_flows = i4("flows", "And flows.", by="levels, traffic")
    in_group_links = i1("links", "Whether it is among them.", by="levels")
    in_group_flows = i1("flows", "Whether it is among them.", by="levels")
    near_end = i8("flows", "The row behind its last in `near`.", by="levels")
    near = i4("crossings", "Its overloaded links.", by="levels")
    near_parts = f8("crossings", "And the parts of these.", by="levels")
    levels = f8("2, flows", "Level, with all exchanges and without.", by="levels")
    bound = f8("flows", "Scratch: `most` of those there are.", by="levels")
    stopped = i1("flows", "Scratch of progressive filling.", by="levels")
    rest = i4("links", "Scratch: links not shared yet.", by="levels")
    full_at = f8("links", "Scratch: level at which it is full.", by="levels")
    outdated = i1("links", "Scratch: whether that is out of date.", by="levels")
    scratch = f8("links", "Scratch.", by="levels, streams")
    duty = f8("instances", "Share of time an exchange is on the wire.", by="traffic")
    crowding = f8("instances", "How much longer it takes there; 1 alone.", fill=1, by="traffic")


class Streams(Columns):
    """Bytes in transfer to or from the memory pool, at a rate that other traffic changes. Four rows
    per prefill (or colocated) instance: reads, writes, writes on to the SSD tier, reads from it."""

    flow = i8("streams", "Its number among the flows.", fill=None)
    busy = i4("streams", "Those with bytes to go, in order.", by="streams, traffic")
    is_busy = i1("streams", "Whether it is among them.", by="streams, traffic")
    count = i8("1", "How many these are.", by="streams, traffic")
    left_bytes = f8("streams", "Still to go at `since_s`.", "B", by="pool, streams")
    rate = f8("streams", "Pace since then.", "B/s", by="pool, streams")
    since_s = f8("streams", "Up to when it has moved.", "s", by="pool, streams")
    parts = i8("prefills", "Equal parts of the DRAM of an instance's pool.", by="machine")
    answers = i1("prefills, parts", "It reaches them.", by="machine")
    home = i4("prefills, parts", "Memory server that has them.", by="machine")
    requested = i8("prefills, servers", "Blocks its batch reads of each.", by="pool")
    hot = i4("prefills", "Server that holds its read back, -1: none.", by="pool")
    even_s = f8("prefills", "End of its read, were servers even.", "s", by="pool")
    held_s = f8("prefills", "By how much it came later.", "s", by="pool")
