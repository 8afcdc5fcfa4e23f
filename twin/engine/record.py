"""What is summarised while running."""

from twin.engine.codes import COUNTERS
from twin.kernels.buffers import Columns, f8, i4, i8


class Record(Columns):
    """Sums and counts of a run; the last row of windows is the steady state."""

    windows = f8(
        "windows + 1, fields", "Sums of the machine.", by="books, colocated, decode, loop, prefill"
    )
    counters = i8(
        f"{COUNTERS}", "Events so far.",
        by="admission, arrivals, colocated, decode, drain, faults, kv_transfer, "
        "prefill, returns, router",
    )  # fmt: skip
    fields = i8("fields", "Scratch: fields that are booked.", by="books, decode, prefill")
    amounts = f8("fields", "Scratch: how much.", by="books, decode, prefill")
    gaps = f8("bins", "Steady-state request-iterations by iteration time.", by="decode")
    traffic = f8("windows + 1, cells", "By class, plane and column.", "B", by="books")
    servers = f8("windows + 1, served", "Blocks read, by pool and server.", by="pool")
    held = f8("windows + 1, served", "How long reads were held.", "s", by="pool")
    instances = f8("windows + 1, looks", "By column and field.", by="books, decode, loop, prefill")


class Log(Columns):
    """Iterations and batches that overlap a watched span, recorded when a run is repeated."""

    span_s = f8("2", "The span; empty where the run is not watched.", "s")
    count = i8("1", "Passes that touched it.", by="books")
    instance = i4("passes", "Its column, over both roles.", by="books")
    begin_s = f8("passes", "Begin.", "s", by="books")
    end_s = f8("passes", "End as planned when it began.", "s", by="books")
    requests = i4("passes", "Requests in a decode batch.", by="books")
    tokens = f8("passes", "Emitted, or computed by a prefill batch.", by="books")
    hot = i4("passes", "Memory server that held its read back, -1: none.", by="books")
    held_s = f8("passes", "By how much.", "s", by="books")
    operators = f8("passes, operators", "On the critical path.", "s", by="books")
