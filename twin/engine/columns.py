"""The state of a run: every column declared once.

From a declaration come the array, what compiled code sees of it, and its row in the tables of the
documentation. Stamps are seconds, NaN until the event happens. `by` names the modules of the
engine that write a column once the run has begun; a test holds it against their assignments. The
state knows nothing about how it is filled or how it moves.
"""

from __future__ import annotations

from math import nan

from twin.buffers import Columns, column, group, key, number
from twin.engine.codes import COUNTERS, NONE, WAITING
from twin.policies.memory_pool import BlockPool

LINK = "Link of the list that holds it."


class Settings(Columns):
    """Numbers of a run: one compiled engine serves all scenarios."""

    horizon_s = number(float, "End of the run.", unit="s")
    warmup_s = number(float, "Begin of the steady state.", unit="s")
    step_s = number(float, "Length of a step.", unit="s")
    closed_loop = number(int, "Whether clients wait for their answers.")
    think_s = number(float, "Mean pause of a closed loop's client.", unit="s")
    has_prefill = number(int, "Whether prompts are computed.")
    has_decode = number(int, "Whether answers are computed.")
    colocated = number(int, "Whether the same instances do both.")
    api_servers = number(int, "API servers of the front end.")
    service_s = number(float, "What an API server takes for a request.", unit="s")
    router_policy = number(int, "Code of the router's policy.")
    rank_choice = number(int, "Code of the choice of a decode rank.")
    pool_enabled = number(int, "Whether there is a memory pool.")
    pool_local = number(int, "Whether each prefill instance has a memory pool of its own.")
    block_tokens = number(int, "Tokens of a KV block.", unit="tokens")
    prefill_ranks = number(int, "Dies of a prefill instance.")
    prefill_budget = number(int, "Tokens of a prefill batch.", unit="tokens")
    chunk_tokens = number(int, "Tokens of a prompt's piece, 0: whole prompts.", unit="tokens")
    data_parallel_attention = number(int, "Whether a prompt's attention stays on one die.")
    prompt_kv_tokens = number(float, "Longest prompt that fits prefill.", unit="tokens")
    batch_kv_tokens = number(float, "KV tokens of one prefill batch.", unit="tokens")
    decode_ranks = number(int, "Dies of a decode instance.")
    page_tokens = number(int, "Tokens of a page of KV.", unit="tokens")
    draft_tokens = number(int, "Tokens that MTP drafts in an iteration.", unit="tokens")
    acceptance = number(float, "Share of draft tokens that is accepted.")
    kv_bytes_per_token = number(float, "KV of one token.", unit="B")
    fetch_latency_s = number(float, "Latency of a read from the memory pool.", unit="s")
    transfer_latency_s = number(float, "Latency of a KV transfer.", unit="s")
    kv_plane = number(int, "Plane that carries KV transfers.")
    pool_plane = number(int, "Plane that the memory pool is read and written over.")
    kv_among_experts = number(int, "Whether KV transfers use the ports of dispatch and combine.")
    sample_every = number(int, "Steps between two looks at the instances.")
    retries = number(int, "How often a request that a fault threw out is tried again.")
    block_bytes = number(float, "KV of one block.", unit="B")
    ssd_write_bytes_per_s = number(float, "Pace of writes to the SSD tier.", unit="B/s")
    prefill_ub_bytes_per_token = number(float, "Dispatch and combine over UB.", unit="B")
    prefill_rdma_bytes_per_token = number(float, "Dispatch and combine over RDMA.", unit="B")
    decode_ub_bytes_per_token = number(float, "Dispatch and combine over UB.", unit="B")
    decode_rdma_bytes_per_token = number(float, "Dispatch and combine over RDMA.", unit="B")
    attention_bytes_per_token = number(float, "Gathered by prefill's attention.", unit="B")
    attention_plane = number(int, "Plane of that.")
    key_route_a = key("Router, first draw.")
    key_route_b = key("Router, second draw.")
    key_accept = key("MTP acceptance.")
    key_round = key("Rounding of iterations.")
    key_think = key("Pauses of clients.")


class Requests(Columns):
    """One row per request, in order of arrival."""

    arrival_s = column("f8", "requests", "Arrival.", unit="s", fill=None)
    input_tokens = column("i4", "requests", "Length of the prompt.", unit="tokens", fill=None)
    output_tokens = column("i4", "requests", "Length of the answer.", unit="tokens", fill=None)
    session = column("i4", "requests", "Conversation.", fill=None)
    segment_offset = column("i8", "requests + 1", "First row of its chain of blocks.", fill=None)
    segment_first = column("i8", "segments", "First block of a run of blocks.", fill=None)
    segment_blocks = column("i4", "segments", "Blocks of a run.", fill=None)
    front_end_s = column("f8", "requests", "Left its API server.", unit="s", fill=nan)
    routed_s = column("f8", "requests", "Left the router.", unit="s", fill=nan)
    prefill_start_s = column("f8", "requests", "First batch began.", unit="s", fill=nan)
    prefill_end_s = column("f8", "requests", "Last batch ended.", unit="s", fill=nan)
    transfer_end_s = column("f8", "requests", "First token delivered.", unit="s", fill=nan)
    finish_s = column("f8", "requests", "Last token out.", unit="s", fill=nan)
    ready_s = column("f8", "requests", "When the next phase may take it.", unit="s", fill=nan)
    hit_tokens = column("i4", "requests", "Prompt tokens found in the pool.", unit="tokens")
    progress = column("i4", "requests", "Tokens of this pass in place.", unit="tokens", fill=NONE)
    emitted = column("i4", "requests", "Output tokens out so far.", unit="tokens")
    prefill_instance = column("i2", "requests", "Prefill instance.", fill=NONE)
    rank = column("i4", "requests", "Decode rank, over all instances.", fill=NONE)
    slot = column("i4", "requests", "Row of its rank's slot table.", fill=NONE)
    joined = column("i4", "requests", "Iteration at which it joined.")
    due = column("i4", "requests", "Iteration at which it finishes.")
    preemptions = column("i2", "requests", "How often its KV was given up.")
    retries = column("i2", "requests", "How often a fault threw it out.")
    status = column("i1", "requests", "Where it is.", fill=WAITING)
    reason = column("i1", "requests", "Why it was turned away.")
    following = column("i4", "requests", LINK, fill=NONE)


class Prefill(Columns):
    """One row per prefill (or colocated) instance."""

    queue_head = column("i4", "prefills", "First request that waits.", fill=NONE)
    queue_tail = column("i4", "prefills", "Last request that waits.", fill=NONE)
    batch_head = column("i4", "prefills", "First whose last piece runs.", fill=NONE)
    batch_tail = column("i4", "prefills", "Last whose last piece runs.", fill=NONE)
    running = column("i1", "prefills", "Whether a batch computes.")
    ends_s = column("f8", "prefills", "End of the running batch.", unit="s")
    free_s = column("f8", "prefills", "End of the last batch.", unit="s")
    queued_tokens = column("i8", "prefills", "Tokens waiting or in prefill.", unit="tokens")
    ending_tokens = column("i8", "prefills", "Of these, in the running batch.", unit="tokens")
    queue_view = column("i8", "prefills", "Scratch: what the router sees.", unit="tokens")
    hit_view = column("i8", "prefills", "Scratch of prefix_affinity.", unit="tokens")
    open = column("i1", "prefills", "The router may choose it.", fill=1)
    up = column("i1", "prefills", "Its dies serve.", fill=1)
    reading = column("i1", "prefills", "The next batch reads its cached KV.")
    begin_s = column("f8", "prefills", "When that batch was formed.", unit="s")
    read_end_s = column("f8", "prefills", "When it will have read.", unit="s")
    batch_tokens = column("f8", "prefills", "What the batch computes.", unit="tokens")
    batch_hits = column("f8", "prefills", "What it reads.", unit="tokens")
    batch_pairs = column("f8", "prefills", "Pairs of tokens in its attention.")
    most_tokens = column("f8", "prefills", "Tokens of the die that has most.", unit="tokens")
    most_pairs = column("f8", "prefills", "Pairs of the die that has most.")
    pool_open = column("i1", "prefills", "It reaches some of the memory pool.", fill=1)
    ssd_bytes_per_s = column("f8", "prefills", "Reads from the SSD tier.", unit="B/s", fill=1)
    cold_tokens = column("i8", "1", "Scratch: hits that only the SSD tier holds.", unit="tokens")
    sending = column("i8", "prefills", "KV transfers under way.")
    die_tokens = column("f8", "prefill_ranks", "Scratch of data-parallel attention.")
    die_pairs = column("f8", "prefill_ranks", "Scratch of data-parallel attention.")
    busy_s = column("f8", "prefills", "Time busy.", unit="s")
    fetched_bytes = column("f8", "prefills", "Read from the memory pool.", unit="B")
    sent_bytes = column("f8", "prefills, prefill_ranks", "KV handed over by each die.", unit="B")


class Transfers(Columns):
    """KV transfers in flight, and the ports they share."""

    request = column("i4", "transfers", "Whose KV.")
    port_out = column("i4", "transfers", "Port it leaves by.")
    port_in = column("i4", "transfers", "Port it enters by.")
    left_bytes = column("f8", "transfers", "Still to go.", unit="B")
    rate = column("f8", "transfers", "Pace of now.", unit="B/s", fill=1)
    active = column("i8", "1", "Transfers in flight.")
    now_s = column("f8", "1", "Up to when they have moved.", unit="s")
    fresh_head = column("i4", "1", "First that is prefilled and not under way.", fill=NONE)
    fresh_tail = column("i4", "1", "Last of these.", fill=NONE)
    fresh = column("i4", "transfers", "Scratch: these in order of time.")
    flows_out = column("i4", "ports", "Transfers that leave by a port.")
    flows_in = column("i4", "ports", "Transfers that enter by a port.")
    capacity = column("f8", "ports", "What other traffic leaves of it.", unit="B/s", fill=None)
    granted = column("f8", "ports", "With nobody else there.", unit="B/s", fill=None)
    port_of_prefill = column("i4", "prefills, prefill_ranks", "Port of a rank.", fill=None)
    port_of_decode = column("i4", "ranks", "Port of a rank.", fill=None)


class Decode(Columns):
    """One row per decode (or colocated) instance, and one per decode rank."""

    running = column("i1", "decodes", "Whether an iteration runs.")
    ends_s = column("f8", "decodes", "End of the running iteration.", unit="s")
    iteration = column("i8", "decodes", "Iterations begun.")
    wait_head = column("i4", "decodes", "First with its KV in place.", fill=NONE)
    wait_tail = column("i4", "decodes", "Last with its KV in place.", fill=NONE)
    in_batch = column("i8", "decodes", "Requests in the running batch.")
    taken = column("i8", "decodes", "Slots running or reserved.")
    room = column("i8", "decodes", "Slots of the ranks in service.", fill=None)
    kv_tokens = column("f8", "decodes", "KV of one rank.", unit="tokens", fill=float("inf"))
    open = column("i1", "decodes", "The router may choose it.", fill=1)
    up = column("i1", "decodes", "Its ranks serve.", fill=1)
    calendar = column("i4", "decodes, ring", "First request due at an iteration.", fill=NONE)
    requests = column("i8", "ranks", "Running requests.")
    context = column("f8", "ranks", "Their context.", unit="tokens")
    growth = column("f8", "ranks", "What an iteration adds to it.", unit="tokens")
    slots = column("i8", "ranks", "Requests it may hold; 0 out of service.", fill=None)
    taken_slots = column("i8", "ranks", "Running or reserved.")
    reserved_tokens = column("f8", "ranks", "Of requests on their way.", unit="tokens")
    taken_tokens = column("f8", "ranks", "What the router sees of its KV.", unit="tokens")
    slot_table = column("i4", "ranks, slots", "Request of a slot.", fill=NONE)
    busy_s = column("f8", "decodes", "Time busy.", unit="s")
    request_s = column("f8", "ranks", "Integral of requests over busy time.", unit="s")
    context_s = column("f8", "ranks", "Integral of context over busy time.", unit="tokens s")
    received_bytes = column("f8", "ranks", "KV received.", unit="B")
    returned_head = column("i4", "1", "First that goes back to the router.", fill=NONE)
    returned_tail = column("i4", "1", "Last that goes back to the router.", fill=NONE)


class Costs(Columns):
    """What the cost kernels read, one row per instance; `alone`: with links to itself."""

    prefill = column("f8", "prefills, coefficients", "Prices of now.", fill=None)
    decode = column("f8", "decodes, coefficients", "Prices of now.", fill=None)
    mixed = column("f8", "decodes, coefficients", "Prices of now.", fill=None)
    prefill_alone = column("f8", "prefills, coefficients", "Prices alone.", fill=None)
    decode_alone = column("f8", "decodes, coefficients", "Prices alone.", fill=None)
    mixed_alone = column("f8", "decodes, coefficients", "Prices alone.", fill=None)
    prefill_carried = column("i8", "carried", "Places of what links carry.", fill=None)
    decode_carried = column("i8", "carried", "Places of what links carry.", fill=None)
    prefill_hot_tokens = column("f8", "points", "Tokens of the table below.", fill=None)
    prefill_hot_factor = column("f8", "prefills, points", "Imbalance of experts.", fill=None)
    decode_hot_tokens = column("f8", "points", "Tokens of the table below.", fill=None)
    decode_hot_factor = column("f8", "decodes, points", "Imbalance of experts.", fill=None)
    prefill_operators = column("f8", "prefill_operators", "Scratch of one batch.", unit="s")
    decode_operators = column("f8", "decode_operators", "Scratch of one iteration.", unit="s")


class Traffic(Columns):
    """Flows of instances that may meet on a link, and what they get of it.

    A flow is a class of an instance's traffic (engine/flows.py numbers them). Links are those on
    which flows can meet. A column is an instance over both roles.
    """

    start = column("i8", "flows + 1", "Rows of `links` and `parts`.")
    links = column("i8", "crossings", "Link that is crossed.")
    parts = column("f8", "crossings", "Share of it that the flow takes alone.")
    link_start = column("i8", "links + 1", "Rows of `entries` and `owners`.")
    entries = column("i8", "crossings", "Places in `parts`, link by link.")
    owners = column("i8", "crossings", "The flows they belong to.")
    alone = column("f8", "flows", "Pace with nobody else there.", unit="B/s", fill=1)
    active = column("i1", "flows", "Whether it is under way.")
    most = column("f8", "flows", "Share of `alone` that it would take.")
    load = column("f8", "links", "Sum of parts times most.")
    level = column("f8", "flows", "Share of `alone` that it gets.")
    scratch = column("f8", "links", "Scratch.")
    beside = column("f8", "flows", "Scratch: levels beside exchanges.")
    wished = column("f8", "flows", "Scratch: `most` while exchanges are left out.")
    held = column("i8", "1", "1 while a flow gets less than it would take.")
    duty = column("f8", "columns", "Share of time an exchange is on the wire.")
    crowding = column("f8", "columns", "How much longer it takes there; 1 alone.", fill=1)
    moves = column("f8", "columns", "Expert weights moving into it.", unit="B/s")


class Streams(Columns):
    """Bytes on their way to or from the memory pool, at a rate that others' coming and going moves.

    Three rows of prefill (or colocated) instances: reads, writes, and what goes on to the SSD tier.
    """

    flow = column("i8", "streams", "Its number among the flows.", fill=None)
    left_bytes = column("f8", "streams", "Still to go at `since_s`.", unit="B")
    rate = column("f8", "streams", "Pace since then.", unit="B/s")
    since_s = column("f8", "streams", "Up to when it has moved.", unit="s")


class Loop(Columns):
    """A closed loop's clients: when each comes back, as a binary heap."""

    due_s = column("f8", "clients", "When a client comes back.", unit="s")
    size = column("i8", "1", "Clients that are due.")


class Record(Columns):
    """What is summarised while running; the last row of windows is the steady state."""

    windows = column("f8", "windows + 1, fields", "Sums of the whole machine.")
    counters = column("i8", f"{COUNTERS}", "Events so far.")
    fields = column("i8", "fields", "Scratch: which fields an event books.")
    amounts = column("f8", "fields", "Scratch: how much.")
    gaps = column("f8", "bins", "Steady-state request-iterations by iteration time.")
    traffic = column("f8", "windows + 1, cells", "By class, plane and column.", unit="B")
    instances = column("f8", "windows + 1, looks", "By column and field.")


class World(Columns):
    """Everything a step reads and writes."""

    settings = group(Settings)
    request = group(Requests)
    prefill = group(Prefill)
    transfer = group(Transfers)
    decode = group(Decode)
    pool = group(BlockPool)
    costs = group(Costs)
    traffic = group(Traffic)
    streams = group(Streams)
    loop = group(Loop)
    record = group(Record)
