"""The coefficients that cost kernels read: what each operator takes, per pass and per row. One
record per kind of instance, filled by decode_costs.py and prefill_costs.py. From the declarations
follow compiled arrays, what slow dies or crowded links change, and causes of time."""

from twin.model.operators import operators_outside_core
from twin.model.record import Record, carried, computed, copied, given, part, parts, record, started

LAUNCHES = "launches and the host"
WEIGHTS = "reading weights"
PRODUCTS = "matrix products"
EXCHANGE = "the exchange with experts"
CORE = "the attention core"
CAUSES = (WEIGHTS, EXCHANGE, CORE, LAUNCHES, PRODUCTS)

CLASSES = 8  # of a die's experts, by popularity
SPLITS = 9  # ways to share the cores between two streams, at most


@record
class Product(Record):
    """A matrix product with the element-wise work around it."""

    fixed: float = computed("Launch.", LAUNCHES)
    weight: float = computed("Reading its weights.", WEIGHTS)
    flop: float = computed("The product, per row.", PRODUCTS)
    io: float = computed("Its activations, per row.")
    vector: float = computed("Element-wise work, per row.")
    place: float = given("Where its seconds are booked.")
    tile_small: float = given("Rows of a tile where all fit in one; 0: no tiles.")
    tile_large: float = given("Rows of a tile where they do not.")


@record
class Experts(Product):
    """The grouped product of a die's experts; its weights are those of one."""

    shared: float = computed("Reading a shared expert's weights, beyond a routed one's.", WEIGHTS)
    ahead: float = computed("Of the weights' reading, done before dispatch ends.")


@record
class DecodeCore(Record):
    """The attention core over cached tokens; `away_*`: what of it is offloaded to prefill dies."""

    fixed: float = computed("Launch, and what it takes beyond its roofs.", LAUNCHES)
    context: float = computed("Per context token, all query tokens of a pass.", CORE)
    reach: float = given("Context tokens that are selected per token of a pass; 0: all.", "tokens")
    index: float = computed("To select: per context token, all query tokens of a pass.", CORE)
    select: float = computed("To select, where more is cached than is selected.", LAUNCHES)
    windowed: float = computed("As `context`, of the layers with a window.", CORE)
    window: float = given("Tokens of a window per token of a pass; 0: none has one.", "tokens")
    independent_cores: float = given("Each has its own query tokens; 0: all cores share each.")
    state: float = computed("States of linear attention, per token of a pass.", CORE)
    ahead: float = copied("KV in host memory, while earlier layers run: per context token.", CORE)
    fetch: float = copied("What is selected and lies there: per context token attended to.", CORE)
    fetch_start: float = given("Launch and latency of that.", "s", CORE)
    away_start: float = given("Launch and barrier of the way there and of that back.", "s", CORE)
    away_token: float = given("The way there and back, per token.", "s", CORE)
    away_context: float = computed("On prefill dies, as `context`.", CORE)


@record
class Gate(Record):
    """The choice of experts."""

    fixed: float = computed("Launch, and reading its weights.", LAUNCHES)
    token: float = computed("Per token.")
    beyond: float = given("Tokens from which cores have several each.", "tokens")
    saved: float = computed("Then, per token beyond.")


@record
class Transfer(Record):
    """Tokens to the dies of their experts (dispatch), or the answers back (combine)."""

    fixed: float = started("Launch and barrier.", EXCHANGE)
    message: float = computed("Vector cores, per token of the busiest die.", EXCHANGE)
    token: float = carried("Per token of the busiest die.", EXCHANGE)
    row: float = carried("Per row that an expert die receives or sends back.", EXCHANGE)
    order: float = computed("Vector cores, per row put in order (prefill).")
    beyond: float = given("Tokens of a die from which another kernel is faster.", "tokens")
    saved: float = carried("By that kernel, per token beyond.", EXCHANGE)


@record
class Collective(Record):
    """A collective of dies that share attention, around its core, or from one stage to the next."""

    fixed: float = started("Launch and barrier.")
    token: float = carried("Per token of a rank or a batch; after prefill's core, of a die.")
    beyond: float = given("Tokens from which another kernel is faster.", "tokens")
    saved: float = carried("By that kernel, per token beyond.")


@record
class LayerCosts(Record):
    """Coefficients of a layer: on all cores in sequence, or of a microbatch on its stream's."""

    gather: Collective = part(Collective)  # hidden states, to the dies of a rank
    before: tuple[Product, ...] = parts(Product, len(operators_outside_core("decode", "before")))
    core: DecodeCore = part(DecodeCore)
    context: Collective = part(Collective)  # queries and values of dies that split a context
    after: tuple[Product, ...] = parts(Product, len(operators_outside_core("decode", "after")))
    scatter: Collective = part(Collective)  # their sums, back to the die of each token
    gate: Gate = part(Gate)
    dispatch: Transfer = part(Transfer)
    experts: Experts = part(Experts)
    combine: Transfer = part(Transfer)
    in_turn: float = given("1: microbatches take turns, each stage with its resource to itself.")


@record
class Popular(Record):
    """A class of a die's routed experts by popularity; classes have equally many."""

    load: float = given("Load of one of them, over the mean of the die's.")


@record
class Layout(Record):
    """Numbers of dies and experts of an instance."""

    dies: float = given("All dies of the instance.")
    top_k: float = given("Routed experts of a token.")
    routed_dies: float = given("Dies with routed experts.")
    slots: float = given("Routed experts of such a die.")
    shared_experts: float = given("Shared experts of a layer.")
    shared_dies: float = given("Dies that hold shared experts alone; 0: every die holds them.")
    split: float = given("Dies that hold a part of each of their experts.")
    expert_dies: float = given("Dies that hold experts and nothing else; 0: all do both (decode).")
    domains: float = given("Domains of attention dies that take turns at the experts (decode).")
    rank_dies: float = given("Dies that split a request's heads and are one rank (decode).")
    context_dies: float = given("Dies that split a request's context.")
    ports: float = given("Time of the fullest port of their exchange, over the fullest link's.")
    classed: float = given("1: a die's experts differ in popularity, by the classes; 0: alike.")
    classes: tuple[Popular, ...] = parts(Popular, CLASSES)


@record
class Sampling(Record):
    """Choosing tokens from logits."""

    fixed: float = computed("Launches, per graph.", LAUNCHES)
    token: float = computed("Per position.")


@record
class Host(Record):
    """Host time of an iteration: alone, or as far as it is longer than the NPU's."""

    launch: float = given("One graph, while the NPU computes.", "s", LAUNCHES)
    gap: float = given("Between two iterations.", "s", LAUNCHES)
    answer: float = given("One request's token, while the NPU computes.", "s", LAUNCHES)
    apart: float = given("One request, between two iterations.", "s", LAUNCHES)
    sync: float = given("Ranks agree on the next pass, while the NPU computes.", "s", LAUNCHES)
    replay: float = given("Before each graph, which the last of all hosts starts.", "s", LAUNCHES)
    drafting: float = given("Graphs that draft, at most.")
    alongside: float = given("For the layers of a captured pass, while it runs.", "s", LAUNCHES)
    kernels: float = given("To launch a pass kernel by kernel, while it runs.", "s", LAUNCHES)
    prompts: float = given("The same, besides, of a pass with prompts.", "s", LAUNCHES)
    before_prompts: float = given("Before a pass with prompts.", "s", LAUNCHES)
    captured: float = given("Tokens of a rank in the largest captured pass; 0: any.")
    captured_prompts: float = given("As `captured`, with prompts in the pass; 0: none is.")


@record
class PromptCore(Record):
    """The attention core of prompt tokens: per layer if iterations mix, else of a die's heads."""

    pair: float = computed("Per query-key pair.")
    latent: float = computed("In latent form, per pair that is selected.")
    index: float = computed("To select, per query-key pair.")
    select: float = computed("To select, per token.")
    reach: float = given("Tokens that are selected for a token; 0: all.", "tokens")
    least: float = given("Computed for a token, whatever it attends to; 0: no more.", "tokens")
    least_from: float = given("Of prompts that are longer than this.", "tokens")
    every: float = given("1: prompts of any length are in latent form, over selected pairs.")
    windowed: float = computed("As `pair`, of the layers with a window.", CORE)
    window: float = given("Tokens of a window; 0: none has one.", "tokens")
    edge: float = computed("Per token: blocks at the diagonal, linear attention.", CORE)
    pair_flops: float = given("Per query-key pair, all layers.", "FLOP")
    latent_flops: float = given("Per pair in latent form, all layers.", "FLOP")
    index_flops: float = given("To select, per query-key pair, all layers.", "FLOP")
    windowed_flops: float = given("Per pair within a window, all layers that have one.", "FLOP")


@record
class Chunk(PromptCore):
    """Costs that a piece of a prompt adds to an iteration besides its rows (colocated)."""

    hit: float = computed("Up-projection of one cached token, all layers.")
    apart: float = given("1: prompts have passes of their own, decode waits; 0: both in one pass.")
    sums: Collective = part(Collective)  # for dispatch and combine, per token of a mean die


@record
class Pipeline(Record):
    """Stages of layers that a pass of decode goes through."""

    hop: Collective = part(Collective)  # to the next stage, per token of a rank
    stages: float = given("How many; 1: every die has all layers.")
    most_moe: float = given("Share of the layers with experts in the stage with most layers.")
    most_dense: float = given("Share of the layers without.")
    last_moe: float = given("Share of the layers with experts in the last stage.")
    last_dense: float = given("Share of the layers without.")
    piece: float = given("Tokens of prompts that a rank computes in a pass; 0: all.", "tokens")


@record
class Demand(Record):
    """Bytes and FLOPs for figures of utilisation."""

    attention_bytes: float = given("Weights of a layer's attention and gate on a die.", "B")
    expert_bytes: float = given("Weights of one expert.", "B")
    shared_more_bytes: float = given("Weights of a shared expert, beyond a routed one's.", "B")
    dense_bytes: float = given("Weights of a dense FFN.", "B")
    head_bytes: float = given("Weights of the LM head.", "B")
    context_bytes: float = given("KV of one context token that is attended to, one layer.", "B")
    index_bytes: float = given("To select: read of one context token, one layer.", "B")
    windowed_bytes: float = given("As `context_bytes`, of the layers with a window.", "B")
    windowed_flops: float = given("As `context_flops`, of the layers with a window.", "FLOP")
    state_bytes: float = given("States of linear attention, per token of a pass, one layer.", "B")
    index_flops: float = given("To select: per query and context token, one layer.", "FLOP")
    attention_flops: float = given("Attention and gate, per token and layer.", "FLOP")
    context_flops: float = given("Per query token and context token, one layer.", "FLOP")
    expert_flops: float = given("One expert, per row.", "FLOP")
    dense_flops: float = given("A dense FFN, per token.", "FLOP")
    head_flops: float = given("The LM head, per position.", "FLOP")
    mtp_flops: float = given("The MTP module's own projection, per position.", "FLOP")
    host_bytes: float = given("Read of host memory, per context token attended to, a layer.", "B")
    host_s: float = given("Per byte of that, without other traffic.", "s")
    written_bytes: float = given("Written to host memory, of a new token, all layers.", "B")
    written_s: float = given("As `host_s`, of these.", "s")
    draft_bytes: float = given("Weights of a drafter's own layer and head, of each pass.", "B")
    draft_first_bytes: float = given("Weights that its first pass reads besides.", "B")
    draft_context_bytes: float = given("KV of one context token in its own layer.", "B")
    draft_flops: float = given("A drafter's own layer, per position.", "FLOP")
    draft_first_flops: float = given("What its first pass computes besides, per position.", "FLOP")
    draft_context_flops: float = given("Its own layer, per query and context token.", "FLOP")
    draft_head_flops: float = given("Its own LM head, per position.", "FLOP")


@record
class DecodeCosts(Record):
    """Coefficients of a decode or a colocated instance."""

    sequence: LayerCosts = part(LayerCosts)
    splits: tuple[LayerCosts, ...] = parts(LayerCosts, SPLITS)
    dense: Product = part(Product)
    drafter: LayerCosts = part(LayerCosts)  # of a layer that drafts, all cores in sequence
    mtp: Product = part(Product)  # how a first pass of it begins
    later: Product = part(Product)  # how its later passes begin
    later_core: DecodeCore = part(DecodeCore)  # of these, with one query token of a request
    draft_dense: Product = part(Product)  # its dense FFN; no weights: it has experts
    draft_head: Product = part(Product)
    head: Product = part(Product)
    logits: Collective = part(Collective)  # of a rank's dies, each with a part of the vocabulary
    sampling: Sampling = part(Sampling)
    host: Host = part(Host)
    pipeline: Pipeline = part(Pipeline)
    chunk: Chunk = part(Chunk)
    layout: Layout = part(Layout)
    demand: Demand = part(Demand)
    ways: float = given("How many of the splits there are.")
    hides: float = given("0: two streams on split cores; 1: computing hides the wire.")
    microbatch: float = given("0: off, 1: on, 2: where it is faster.")
    query_tokens: float = given("Tokens of a request in one pass: 1 + drafts.")
    drafts: float = given("Draft tokens of a pass.")
    passes: float = given("Passes that draft them.")
    modules: float = given("Of these, through the model's MTP module.")
    draft_share: float = given("Tokens of the drafter's LM head, over the model's vocabulary.")
    moe_layers: float = given("Layers with experts.")
    dense_layers: float = given("Layers with a dense FFN.")
    in_cast: float = given("1: transmissions to shared experts are not scheduled.")
    tiles: float = given("Tiles of dispatch, experts and combine in one operator; 0: three.")
    shared_early: float = given("1: a shared expert on the same die computes during dispatch.")
    buffer_tokens: float = given("Of a die in one round of the exchange; 0: all at once.")
    concentration: float = given("Requests of a die that does attention, per request of a rank.")


@record
class PrefillCore(PromptCore):
    """Prefill's attention core."""

    fixed: float = computed("Launch.")
    hit: float = computed("Up-projection of one cached token of the batch.")


@record
class PrefillDemand(Record):
    """Bytes and FLOPs for figures of utilisation."""

    weight_bytes: float = given("Weights a die reads in one batch, without experts.", "B")
    expert_bytes: float = given("Weights of one expert, all MoE layers.", "B")
    shared_more_bytes: float = given("Of a shared expert, beyond a routed one's, all layers.", "B")
    token_bytes: float = given("Activations, per token.", "B")
    token_flops: float = given("Per token, without attention pairs.", "FLOP")


@record
class PrefillCosts(Record):
    """Coefficients of a prefill instance."""

    before: tuple[Product, ...] = parts(
        Product, 1 + len(operators_outside_core("prefill", "before"))
    )
    gather: Collective = part(Collective)
    context: Collective = part(Collective)  # KV, to dies that split a prompt; per token of a die
    core: PrefillCore = part(PrefillCore)
    exchange: Collective = part(Collective)
    after: tuple[Product, ...] = parts(Product, 1 + len(operators_outside_core("prefill", "after")))
    gate: Gate = part(Gate)
    dispatch: Transfer = part(Transfer)
    experts: Experts = part(Experts)
    combine: Transfer = part(Transfer)
    dense: Product = part(Product)
    drafter: Product = part(Product)  # a drafter's own dense layer; no weights: there is none
    drafter_pair: float = computed("Attention core of that layer, per query-key pair on the die.")
    layout: Layout = part(Layout)
    demand: PrefillDemand = part(PrefillDemand)
    hop: Collective = part(Collective)  # to the next pipeline stage; per token of a die
    head: float = computed("The LM head for one position of each prompt.")
    launch: float = given("Launching the graph, and the host before it.", "s")
    kernels: float = given("Launching it kernel by kernel instead, while it runs.", "s")
    captured: float = given("Tokens of a die in the largest pass that is a graph; 0: none is.")
    moe_layers: float = given("Layers with experts, the MTP module's among them.")
    dense_layers: float = given("Layers with a dense FFN.")
    microbatch: float = given("1: two microbatches.")
    split_ffn: float = given("1: dies split a dense FFN, with collectives as attention's.")
    routing: float = given("1: rows are ordered in the stream that computes; 0: at the same time.")
    compute_share: float = given("Cores left to compute while two microbatches overlap.")
