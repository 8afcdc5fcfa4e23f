"""Columns of the population of a decode or colocated instance: its ranks, and the requests that
have a place on them."""

import math

import numpy as np

from twin.kernels.buffers import Columns, column, f8, i1, i4, i8, number
from twin.model.coefficients import DecodeCosts
from twin.model.record import dtype_of

NONE = -1
FREE, COMING, DECODING = range(3)  # status of a place


class Population(Columns):
    """One decode or colocated instance: its ranks and the requests with a slot on them."""

    prices = column(dtype_of(DecodeCosts), "1", "Prices of an iteration.", fill=None)
    colocated = number(int, "Whether prompts are computed in the same iterations.")
    pair = number(float, "Query-key pairs of a prompt, for the square of its tokens.")
    fresh = number(float, "Share of a prompt that is computed.")
    prompt_ranks = number(int, "Ranks that split a prompt.")
    prompt_delay = number(int, "Iterations that prompts wait for ranks without one, at most.")
    chunk_most = number(float, "Prompt tokens of a rank in an iteration, at most.", unit="tokens")
    hot_tokens = f8("points", "Tokens of the table below.", fill=None)
    hot_factor = f8("loads", "Imbalance of experts.", fill=None)
    inputs = i4("sample", "Prompt lengths to draw from.", "tokens", fill=None)
    shortest = number(int, "Shortest of these.")
    outputs = i4("sample", "Answer lengths, of the same requests.", fill=None)
    room_tokens = number(float, "KV of one rank.", unit="tokens")
    page_tokens = number(float, "Half of a KV block: mean waste of a request.", unit="tokens")
    rank_choice = number(int, "Code of the policy that chooses a rank.")
    regular = number(float, "Shape of the gaps between arrivals: 1 is Poisson.")
    draft_tokens = number(int, "MTP drafts of an iteration.")
    refused = f8("1", "Shortest prompt that found no room since an answer ended.", fill=math.inf)
    skips = number(int, "Whether iterations in which nothing happens are run at once.")
    acceptance = number(float, "Chance that a draft is right.")
    draw = number(np.uint64, "Which request comes.")
    gap = number(np.uint64, "Arrivals.")
    accept = number(np.uint64, "Iterations that an answer needs.")
    round = number(np.uint64, "Their rounding.")
    offset = number(np.uint64, "When within an iteration a request comes.")
    slots = i4("ranks", "Requests a rank may hold.", fill=None)
    requests = i8("ranks", "Requests that decode.")
    context = f8("ranks", "Their context.", "tokens")
    growth = f8("ranks", "What an iteration adds to it.", "tokens")
    reserved = f8("ranks", "Of requests that have a place and are in prefill.")
    taken = i4("ranks", "Places taken.")
    load = f8("ranks", "Tokens of a rank as the choice of one sees them.")
    total = f8("1", "Of all ranks.")
    price = f8("ranks", "Scratch of the choice of a rank.")
    operators = f8("operators", "Scratch of an iteration.", "s")
    ring = i4("ring", "First place that is due at an iteration.", fill=NONE)
    following = i4("places", "Next place of a list.", fill=NONE)
    status = i1("places", "Free, reserved or decoding.")
    rank = i4("places", "Its rank.")
    prompt = i4("places", "Prompt.", "tokens")
    left = i4("places", "Tokens of the answer after the first.", "tokens")
    joined = i8("places", "Iteration at which it joined.")
    due = i8("places", "Iteration at which it joins or ends.")
    joined_s = f8("places", "When it joined, by `now_s`; NaN: before the first iteration.", "s")
    came_s = f8("places", "When it came, by `now_s`; NaN: before the first iteration.", "s")
    wait_s = f8("places", "From there to its first token.")
    to_compute = f8("places", "What is left of its prompt to compute.", "tokens")
    at = i8("7", "Iteration, places taken, draws, first free place, decoding, waiting, delayed.")
    ahead = f8("1", "Iterations until the next arrival.")
    now_s = f8("2", "Seconds of all iterations of a colocated instance; of the last one.")
    ended = i8("1", "Answers of a colocated instance that ended, with both stamps.")
    ended_wait_s = f8("answers", "Wait for the first token of the last of them.", "s")
    ended_token_s = f8("answers", "Their seconds a token after it; 0 of one token.", "s")
    head = i4("ranks", "First prompt that a group's first rank has to compute.", fill=NONE)
    tail = i4("ranks", "Last one.", fill=NONE)
    chunk = f8("ranks", "Prompt tokens of a rank in this iteration.", "tokens")
    chunk_pairs = f8("ranks", "Query-key pairs of these.")
    most_waiting = number(float, "Requests without a place that still get a first token in time.")
    expected_s = number(float, "Mean iteration, where prompts lengthen some; else 0.", unit="s")
    instances = number(float, "Mixed instances among which a request goes to the first to begin.")
    prompt_s = number(float, "What a prompt that waits adds to their wait for the next.", unit="s")
    step_s = number(float, "Between two waits that are distinguished.", unit="s")
    queued = i8("1", "Prompts that still have tokens to compute.")
    waits = f8("waits", "How long the wait of an instance had each length.", "s")
    chances = f8("waits", "Sum to a wait of chances that all others wait longer; 0: not known.")
    stretch = f8("3", "Mean of the last stretch of iterations; sum and count of this.")
    seen = f8(
        "13",
        "Sums: looks, seconds, decoding, context, late, coming; stretches, squares, by last; "
        "answers that ended, seconds a token of each; prompt tokens expected, and that came "
        "(colocated).",
    )


ITERATION, TAKEN, DRAWS, FIRST_FREE, DECODES, WAITS, DELAYED = range(7)
