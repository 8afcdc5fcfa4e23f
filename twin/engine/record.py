"""What is summarised while running."""

from twin.engine.codes import COUNTERS
from twin.kernels.buffers import Columns, column


class Record(Columns):
    """Sums and counts of a run; the last row of windows is the steady state."""

    windows = column(
        "f8", "windows + 1, fields", "Sums of the whole machine.", by="books, decode, loop, prefill"
    )
    counters = column(
        "i8",
        f"{COUNTERS}",
        "Events so far.",
        by="admission, arrivals, colocated, decode, drain, faults, front_end, "
        "kv_transfer, prefill, returns, router",
    )
    fields = column(
        "i8", "fields", "Scratch: which fields an event books.", by="books, decode, pool, prefill"
    )
    amounts = column("f8", "fields", "Scratch: how much.", by="books, decode, pool, prefill")
    gaps = column("f8", "bins", "Steady-state request-iterations by iteration time.", by="decode")
    traffic = column(
        "f8", "windows + 1, cells", "By class, plane and column.", unit="B", by="books"
    )
    servers = column("f8", "windows + 1, served", "Blocks read, by pool and server.", by="pool")
    held = column("f8", "windows + 1, served", "How long reads were held.", unit="s", by="pool")
    instances = column(
        "f8", "windows + 1, looks", "By column and field.", by="books, decode, loop, pool, prefill"
    )


class Log(Columns):
    """Iterations and batches that overlap a watched span, recorded when a run is repeated."""

    span_s = column("f8", "2", "The span; empty where the run is not watched.", unit="s")
    count = column("i8", "1", "Passes that touched it.", by="books")
    instance = column("i4", "passes", "Its column, over both roles.", by="books")
    begin_s = column("f8", "passes", "Begin.", unit="s", by="books")
    end_s = column("f8", "passes", "End as planned when it began.", unit="s", by="books")
    requests = column("i4", "passes", "Requests in a decode batch.", by="books")
    tokens = column("f8", "passes", "Emitted, or computed by a prefill batch.", by="books")
    hot = column("i4", "passes", "Memory server that held its read back, -1: none.", by="books")
    held_s = column("f8", "passes", "By how much.", unit="s", by="books")
    operators = column("f8", "passes, operators", "On the critical path.", unit="s", by="books")
