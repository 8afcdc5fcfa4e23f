"""Columns of what instances put on links that they share."""

from __future__ import annotations

from math import inf

from twin.kernels.buffers import Columns, column


class Traffic(Columns):
    """Flows of instances that may meet on a link, and what they get of it. A flow is a class of an
    instance's traffic, numbered by flows.py. Links are those on which flows can meet. A column is
    an instance of any role."""

    first = column("i8", "classes", "First flow of a class of traffic.", fill=None)
    end = column("i8", "classes", "The one behind its last.", fill=None)
    start = column("i8", "flows + 1", "Rows of `links` and `parts`.")
    links = column("i8", "crossings", "Link that is crossed.")
    parts = column("f8", "crossings", "Share of it that the flow takes alone.", by="traffic")
    server = column("i4", "crossings", "Memory server whose port it is, -1: none.")
    whole = column("f8", "crossings", "Part where all is read from that server.")
    link_start = column("i8", "links + 1", "Rows of `owners` and `owner_parts`.")
    owners = column("i8", "crossings", "Flows that cross it, link by link.")
    owner_parts = column(
        "f8", "crossings", "What each of them takes alone, as in `parts`.", by="traffic"
    )
    place = column("i8", "crossings", "Where a crossing stands in `owner_parts`.")
    alone = column("f8", "flows", "Rate without other flows.", unit="B/s", fill=1)
    pace = column(
        "f8", "flows", "Most it takes by itself; 0 of weights that rest.", unit="B/s", fill=inf,
        by="machine",
    )  # fmt: skip
    wish = column("f8", "flows", "Share of `alone` that it takes if it may.", fill=1, by="machine")
    active = column("i1", "flows", "Whether it is under way.", by="traffic")
    most = column("f8", "flows", "Share of `alone` that it would take.", by="traffic")
    load = column("f8", "links", "Sum of parts times most.", by="traffic")
    level = column("f8", "flows", "Share of `alone` that it gets.", by="traffic")
    scratch = column("f8", "links", "Scratch.", by="streams, traffic")
    mixed = column("f8", "flows", "Scratch: mean of levels, by time.", by="traffic")
    wished = column("f8", "flows", "Scratch: `most` while some are left out.", by="traffic")
    held = column("i8", "1", "1 while a flow gets less than it would take.", by="traffic")
    duty = column("f8", "columns", "Share of time an exchange is on the wire.", by="traffic")
    crowding = column(
        "f8", "columns", "How much longer it takes there; 1 alone.", fill=1, by="traffic"
    )


class Streams(Columns):
    """Bytes on their way to or from the memory pool, at a rate that others' coming and going moves.
    Four rows of prefill (or colocated) instances: reads, writes, what goes on to the SSD tier, and
    what comes back from it."""

    flow = column("i8", "streams", "Its number among the flows.", fill=None)
    left_bytes = column("f8", "streams", "Still to go at `since_s`.", unit="B", by="pool, streams")
    rate = column("f8", "streams", "Pace since then.", unit="B/s", by="pool, streams")
    since_s = column("f8", "streams", "Up to when it has moved.", unit="s", by="pool, streams")
    servers = column("i8", "prefills", "Memory servers of an instance's pool.", by="machine")
    answers = column("i1", "prefills, servers", "It reaches them.", by="machine")
    requested = column("i8", "prefills, servers", "Blocks its batch reads of each.", by="pool")
    hot = column("i4", "prefills", "Server that holds its read back, -1: none.", by="pool")
    even_s = column("f8", "prefills", "End of its read, were servers even.", unit="s", by="pool")
    held_s = column("f8", "prefills", "By how much it came later.", unit="s", by="pool")
