"""The state of a run: every column declared once.

From a declaration come the array and what compiled code sees of it. Stamps are seconds, NaN until
the event happens. `by` names the modules of the engine that write a column once the run has begun;
a test holds it against their assignments. The state does not know how it is filled or moves."""

from functools import partial
from math import inf, nan

from twin.engine.codes import COUNTERS, NONE, WAITING
from twin.engine.contention.shared_links import Streams, Traffic
from twin.engine.settings import Settings
from twin.kernels import borrowed  # noqa: F401 - tells numba what columns are
from twin.kernels.buffers import Columns, column, f4, f8, group, i1, i2, i4, i8
from twin.model.coefficients import DecodeCosts as DecodePrices
from twin.model.coefficients import PrefillCosts as PrefillPrices
from twin.model.record import dtype_of
from twin.policies.memory_pool import BlockPool, PrefixCache
from twin.policies.router import View

LINK = "Link of the list that holds it."
stamp = partial(f8, "requests", unit="s", fill=nan)
ends = partial(i4, fill=NONE)  # head and tail of a list of requests


class Requests(Columns):
    """One row per request, in order of arrival."""

    arrival_s = f8("requests", "Arrival.", "s", fill=None, by="arrivals")
    input_tokens = i4("requests", "Length of the prompt.", "tokens", fill=None, by="arrivals")
    output_tokens = i4("requests", "Length of the answer.", "tokens", fill=None, by="arrivals")
    session = i4("requests", "Number of its conversation.", fill=None, by="arrivals")
    segment_offset = i8("requests + 1", "First segment of its prompt.", fill=None)
    segment_first = i8("segments", "First block of a segment.", fill=None)
    segment_blocks = i4("segments", "Blocks of a segment.", fill=None)
    front_end_s = stamp("Left its API server.", by="arrivals, recorder")
    routed_s = stamp("Left the router.", by="recorder, router")
    prefill_start_s = stamp("First batch began.", by="faults, prefill, recorder, router")
    prefill_end_s = stamp("Last batch ended.", by="faults, prefill, recorder, router")
    transfer_end_s = stamp(
        "First token delivered.",
        by="colocated, decode, faults, kv_transfer, prefill, recorder, router",
    )
    finish_s = stamp("Last token out.", by="decode, prefill, recorder")
    ready_s = stamp(
        "When the next phase may take it.",
        by="admission, arrivals, colocated, decode, faults, kv_transfer, prefill, returns, router",
    )
    hit_tokens = i4("requests", "Prompt tokens found in the pool.", "tokens", by="prefill")
    progress = i4(
        "requests", "Prompt tokens with KV.", "tokens", fill=NONE, by="faults, prefill, router"
    )
    work_s = f4("requests", "Its prefill time, predicted.", "s", by="router")
    fresh_tokens = i4("requests", "Uncached tokens, predicted.", "tokens", by="router")
    emitted = i4("requests", "Output tokens out so far.", "tokens", by="decode, faults")
    prefill_instance = i2("requests", "Prefill instance.", fill=NONE, by="router")
    rank = i4("requests", "Decode rank, over all instances.", fill=NONE, by="faults, router")
    slot = i4("requests", "Row of its rank's slot table.", fill=NONE, by="decode")
    joined = i4("requests", "Iteration at which it joined.", by="decode")
    due = i4("requests", "Iteration at which it finishes.", by="decode")
    parts = i2("requests", "Dies that still receive its KV.", by="kv_transfer")
    preemptions = i2("requests", "Times that its KV was given up.", by="decode")
    retries = i2("requests", "Times that a fault ended an attempt of it.", by="faults")
    status = i1(
        "requests", "Phase that it is in, or how it ended.", fill=WAITING,
        by="admission, decode, faults, kv_transfer, prefill, returns",
    )  # fmt: skip
    reason = i1("requests", "Why it was refused.", by="admission, arrivals, decode, faults")
    turn = i4("made", "Its row in the prepared stream of requests.", by="arrivals")
    attempt = i2("made", "Attempts before this one.", by="arrivals")
    gone = i1("made", "Its client left while its batch computes.", by="arrivals")
    held = i1("gated", "How far it is inside the admission gate.", by="admission, fair, returns")
    place = f8("gated", "Place in the admission queues; lower goes first.", by="admission, fair")
    supernode = i2("sent", "Supernode that the front router chose.", fill=NONE, by="router")
    following = i4(
        "requests", LINK, fill=NONE,
        by="admission, arrivals, decode, fair, faults, kv_transfer, prefill, router, swap",
    )  # fmt: skip


class Instances(Columns):
    """One row per instance of any role: prefill, then decode or colocated (`Settings.prefills` and
    `prompt_row` say where each role begins)."""

    open = i1("instances", "Whether the router may choose it.", fill=1, by="life")
    up = i1("instances", "Whether its dies serve.", fill=1, by="life")
    running = i1(
        "instances", "Whether a batch or an iteration runs.",
        by="colocated, decode, faults, incidents, prefill",
    )  # fmt: skip
    ends_s = f8(
        "instances", "End of the batch or iteration; none begins before it.", "s",
        by="arrivals, balancing, colocated, decode, faults, incidents, life, prefill",
    )  # fmt: skip
    busy_s = f8("instances", "Time busy.", "s", by="balancing, books, decode, prefill")
    port_times_s = f8(
        "instances, 2", "Time since its last pass began, and that its exchange lost at its ports.",
        "s", by="traffic",
    )  # fmt: skip


class Front(Columns):
    """Supernodes behind a front router, one row each; one row without it."""

    of_prefill = i4("prefills", "Supernode of an instance that prefills.", fill=None)
    of_decode = i4("decodes", "Supernode of an instance that decodes.", fill=None)
    opened = i1("supernodes", "Whether it serves.", by="router")
    inside = f8("supernodes", "Requests in progress, as last reported.", by="router")
    due_s = f8("1", "When the next report is due.", "s", by="router")
    sent = i8("1", "Requests that it has sent.", by="router")
    wait = ends("supernodes, 2", "Requests that wait at a supernode.", by="router")
    waiting = i8("supernodes", "Length of that list.", by="router")


class Prefill(Columns):
    """One row per prefill (or colocated) instance."""

    pool = i4("prefills", "Memory pool of the instance.", fill=None)
    queue = ends("prefills, 2", "Requests that wait.", by="arrivals, faults, prefill, router")
    batch = ends("prefills, 2", "Requests whose last chunk runs.", by="faults, prefill")
    queued_tokens = i8("prefills", "Tokens waiting or in prefill.", "tokens", by="prefill, router")
    ending_tokens = i8("prefills", "`queued_tokens` of the running batch.", "tokens", by="prefill")
    queued_s = f8("prefills", "Predicted time of these.", "s", by="prefill, router")
    ending_s = f8("prefills", "`queued_s` of the running batch.", "s", by="prefill")
    tokenised_s = f8("prefills", "When its tokeniser is free.", "s", by="router")
    delayed = i8("prefills", "Iterations that prompts waited for ranks.", by="prefill")
    unseen = i8("prefills", "Iterations since prompts were last received.", by="prefill")
    seen_s = f8("prefills", "Latest arrival that a mixed iteration can include.", "s", by="prefill")
    reading = i1("prefills", "The next batch reads its cached KV.", by="colocated, pool, prefill")
    begin_s = f8("prefills", "When the running batch was formed.", "s", by="incidents, prefill")
    read_end_s = f8("prefills", "The next batch has read its KV.", "s", by="pool, streams")
    batch_tokens = f8("prefills", "Tokens that the batch computes.", "tokens", by="prefill")
    batch_hits = f8("prefills", "Cached tokens of its prompts.", "tokens", by="prefill")
    batch_reads = f8("prefills", "`batch_hits` read from the pool.", "tokens", by="prefill")
    batch_pairs = f8("prefills", "Pairs of tokens in the batch's attention.", by="prefill")
    most_tokens = f8("prefills", "Tokens of the die that takes longest.", "tokens", by="prefill")
    most_pairs = f8("prefills", "Pairs of attention of the die that takes longest.", by="prefill")
    read_bytes_per_token = f8("prefills", "Bytes read for each hit token.", "B", by="machine")
    read_bytes_per_s = f8("prefills", "Pool reads from all servers.", "B/s", fill=1, by="machine")
    ahead_s_per_token = f8("prefills", "Lookup and copy of a hit token.", "s", by="machine")
    recompute_s_per_token = f8("prefills", "To compute a token in a full batch.", "s", by="machine")
    pass_s = f8("prefills", "Fixed time of a batch.", "s", by="machine")
    s_per_token = f8("prefills", "Time that a token adds to a batch.", "s", by="machine")
    s_per_pair = f8("prefills", "Time that a pair of attention adds to a batch.", "s", by="machine")
    attention_s_per_token = f8("prefills", "Attention of a token in a layer.", "s", by="machine")
    computed_tokens = f8("prefills", "Tokens of all batches so far.", "tokens", by="prefill")
    computed_pairs = f8("prefills", "Pairs of attention in all batches so far.", by="prefill")
    full_s = f8("prefills", "Time of all batches that were at least half full.", "s", by="prefill")
    full_line_s = f8("prefills", "Time that was predicted for these batches.", "s", by="prefill")
    pool_open = i1("prefills", "Whether it reaches a memory server.", fill=1, by="machine")
    ssd_bytes_per_s = f8("prefills", "SSD reads without other traffic.", "B/s", by="machine")
    cold_blocks = i8("1", "Scratch: hit blocks that only the SSD tier holds.", by="prefill")
    sending = i8("prefills", "Parts of KV transfers under way.", by="kv_transfer")
    stage_s = f8("prefills, stages", "When a pipeline stage is free.", "s", by="prefill")
    die_tokens = f8("prefill_ranks", "Scratch of data-parallel attention.", by="prefill")
    die_pairs = f8("prefill_ranks", "Scratch of data-parallel attention.", by="prefill")
    fetched_bytes = f8("prefills", "Bytes read from the memory pool.", "B", by="pool")
    sent_bytes = f8("prefills, prefill_ranks", "KV handed over by a die.", "B", by="kv_transfer")


class Transfers(Columns):
    """Parts of KV transfers in progress, one for each receiving die, and the ports they share."""

    request = i4("parts_sent", "Request whose KV it moves.", by="kv_transfer")
    die = i4("parts_sent", "Which die of its rank it goes to.", by="kv_transfer")
    port_out = i4("parts_sent", "Port it leaves by.", by="kv_transfer")
    port_in = i4("parts_sent", "Port it enters by.", by="kv_transfer")
    left_bytes = f8("parts_sent", "Bytes still to move.", "B", by="kv_transfer")
    rate = f8("parts_sent", "Rate at present.", "B/s", fill=1, by="kv_transfer")
    active = i8("1", "Parts of transfers in flight.", by="kv_transfer")
    now_s = f8("1", "Time up to which `left_bytes` is right.", "s", by="kv_transfer")
    unsent = ends(
        "1, 2", "Prefilled, transfer not begun.", by="arrivals, faults, kv_transfer, prefill"
    )
    fresh = i4("transfers", "Scratch: requests of `unsent` in order of time.", by="kv_transfer")
    crossing = i4("2, ports", "Parts that leave by a port, that enter by it.", by="kv_transfer")
    rest = f8("2, ports", "What they leave of it, each way.", "B/s", by="kv_transfer")
    growing = i4("parts_sent", "Scratch: parts whose rate is not yet known.", by="kv_transfer")
    open = i4("2, ports", "Scratch: of these, those at a port.", by="kv_transfer")
    limited = i4("2, ports", "Scratch: of these, those it limits.", by="kv_transfer")
    capacity = f8("ports", "Rate that others leave.", "B/s", by="machine, traffic")
    granted = f8("ports", "Rate of a port without other traffic.", "B/s", by="machine")
    port_of_prefill = i4("prefills, prefill_ranks", "Port of a rank.", by="machine")
    port_of_decode = i4("ranks, rank_dies", "Of each die.", by="machine")


class Decode(Columns):
    """One row per decode (or colocated) instance, and one per decode rank."""

    iteration = i8("decodes", "Iterations begun.", by="decode")
    wait = ends(
        "decodes, 2", "Requests that wait with their KV in place.",
        by="arrivals, decode, faults, kv_transfer, router",
    )  # fmt: skip
    in_batch = i8("decodes", "Requests in the running batch.", by="decode")
    taken = i8("decodes", "Slots running or reserved.", by="decode, router")
    room = i8("decodes", "Slots of the ranks in service.", by="machine")
    kv_tokens = f8("decodes", "KV that fits on a rank.", "tokens", fill=inf, by="machine")
    calendar = i4("decodes, ring", "First request due at an iteration.", fill=NONE, by="decode")
    requests = i8("ranks", "Requests that run.", by="decode")
    context = f8("ranks", "Context of the running requests.", "tokens", by="arrivals, decode")
    growth = f8("ranks", "Tokens that an iteration adds to `context`.", "tokens", by="decode")
    prompt_tokens = f8("ranks", "Prompt tokens of a mixed iteration.", "tokens", by="prefill")
    prompt_pairs = f8("ranks", "Pairs of attention of a mixed iteration.", by="prefill")
    tenant_growth = f8("decodes, tenants", "`growth` by tenant.", "tokens", by="fair")
    slots = i4("ranks", "Requests it may hold; 0 when out of service.", by="machine")
    taken_slots = i4("ranks", "Slots running or reserved on it.", by="decode, router")
    reserved_tokens = f8(
        "ranks", "KV of requests to come.", "tokens", by="decode, faults, router, swap"
    )
    taken_tokens = f8("ranks", "KV that the router counts.", "tokens", by="router")
    all_tokens = f8("decodes", "`taken_tokens` of all its ranks.", "tokens", by="router")
    changed = i1("decodes", "The router reads its load anew.", fill=1, by="decode, router, swap")
    price = f8("ranks", "Scratch of the choice of a rank.", by="router")
    refused = f8(
        "decodes", "KV for which no rank had room, until one may.", "tokens", fill=inf,
        by="decode, machine, router",
    )  # fmt: skip
    slot_table = i4("ranks, slots", "Request of a slot.", fill=NONE, by="decode")
    request_s = f8("ranks", "Integral of requests over busy time.", "s", by="decode")
    context_s = f8("ranks", "Integral of context over busy time.", "tokens s", by="decode")
    received_bytes = f8("ranks", "Bytes of KV received.", "B", by="kv_transfer")
    swapped = ends("ranks, 2", "Requests with KV in host memory.", by="arrivals, faults, swap")
    swapped_out = i8("decodes", "Requests with KV in host memory.", by="swap")
    swapped_tokens = f8("ranks", "Of these, in `reserved_tokens`.", "tokens", by="swap")
    swapped_bytes = f8("ranks, 4", "As in codes HELD to DROPPED, of each die.", "B", by="swap")
    copy_s = f8("ranks", "Copies to and from host memory before the next pass.", "s", by="swap")
    copying = f8("decodes, hosts", "Of these, by 2 * node + 1 if out.", "B", by="swap")
    copies_end_s = f8("decodes", "End of the copies before the present pass.", "s", by="swap")
    written = f8("ranks", "KV of each die for host memory since the pass before.", "B", by="swap")
    streaming = f8("decodes, hosts", "As `copying`, while the pass runs.", "B", by="swap")
    host = i4("ranks", "Node of a rank, of those of its instance.", by="machine")
    host_bytes_per_s = f8("decodes, 2", "Rate of copies: all nodes, one.", fill=1, by="machine")
    s_per_host_byte = f8("decodes, 2", "Out of and into host memory, of a die.", by="machine")
    returned = ends("1, 2", "Requests back to the router.", by="arrivals, decode, faults, router")


class Costs(Columns):
    """Inputs of the cost kernels, one row per instance; `alone`: without other traffic."""

    prefill = column(dtype_of(PrefillPrices), "prefills", "Prices at present.", fill=None)
    decode = column(dtype_of(DecodePrices), "decodes", "Prices at present.", fill=None)
    # The same memory, number by number; then prices without other traffic.
    prefill_now = f8("prefills, coefficients", "Prices now.", fill=None, by="machine, traffic")
    decode_now = f8("decodes, coefficients", "Prices now.", fill=None, by="machine, swap, traffic")
    prefill_alone = f8("prefills, coefficients", "Prices alone.", fill=None, by="machine")
    decode_alone = f8("decodes, coefficients", "Prices alone.", fill=None, by="machine")
    priced = f8("instances", "Present factor on the wire's times.", fill=1, by="machine, traffic")
    prefill_carried = i8("carried", "Places of the coefficients that links carry.", fill=None)
    decode_carried = i8("carried", "Places of the coefficients that links carry.", fill=None)
    decode_copied = i8("copied", "Places of those that links to host memory carry.", fill=None)
    prefill_hot_tokens = f8("points", "Tokens at the points of a table.", fill=None)
    prefill_hot_factor = f8(
        "prefills, prefill_loads", "Expert imbalance.", fill=None, by="balancing"
    )
    decode_hot_tokens = f8("points", "Tokens at the points of a table.", fill=None)
    decode_hot_factor = f8("decodes, decode_loads", "Expert imbalance.", fill=None, by="balancing")
    sent = f8(
        "instances, 4", "Bytes for a token: dispatch and combine within a node (UB) and beyond it "
        "(RDMA), what prefill's attention gathers within and beyond.", "B", by="machine",
    )  # fmt: skip
    prefill_operators = f8("prefill_operators", "Scratch of one batch.", "s", by="prefill")
    decode_operators = f8("decode_operators", "Scratch of a pass.", "s", by="colocated, decode")


class Loop(Columns):
    """Clients that send again: a binary heap of times, and the turn of each."""

    due_s = f8("clients", "When a client comes.", "s", by="arrivals, returns")
    turn = i8("clients", "Turn and attempt; NONE: the next.", fill=NONE, by="arrivals, returns")
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
    filled_s = f8("tenants + 1", "Time of that; full at the start.", "s", fill=-1, by="admission")
    served = f8("tenants", "Tokens served, over its weight.", by="fair")
    waiting = i8("tenants", "Requests that have not begun.", by="fair, returns")
    handed = f8("tenants", "Prompts of those behind the router.", "tokens", by="fair, returns")
    last = i8("1", "The tenant whose request began last.", by="fair")
    reached = f8("tenants", "Scratch of places in a queue.", by="fair")
    wait = ends("1, 2", "Requests that may be routed.", by="admission, arrivals, router")


class Record(Columns):
    """Sums and counts of a run; the last row of windows is the steady state."""

    windows = f8(
        "windows + 1, fields", "Machine sums.", by="books, colocated, decode, loop, prefill"
    )
    counters = i8(
        f"{COUNTERS}", "Events so far.",
        by="admission, arrivals, colocated, decode, faults, kv_transfer, prefill, returns, router",
    )  # fmt: skip
    rounded_tokens = f8("1", "Parts of tokens that answers cut short lost.", by="decode, faults")
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


class World(Columns):
    """Everything a step reads and writes."""

    settings = group(Settings)
    request = group(Requests)
    instance = group(Instances)
    front = group(Front)
    prefill = group(Prefill)
    seen = group(View)
    transfer = group(Transfers)
    decode = group(Decode)
    pool = group(BlockPool)
    ssd = group(BlockPool)
    hbm = group(BlockPool)
    prefix = group(PrefixCache)
    costs = group(Costs)
    traffic = group(Traffic)
    streams = group(Streams)
    loop = group(Loop)
    turn = group(Turns)
    gate = group(Gate)
    record = group(Record)
    log = group(Log)
