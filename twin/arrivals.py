"""How many requests come to one of several mixed instances while an iteration of it lasts.

A router that looks into queues sends each to the instance that waits least: the rest of its
iteration, then the prompts that wait there. While that falls from one length to another, all others
wait longer with the chances that `chances` sums; the instances count as independent of each other.
An instance that rests begins what comes at once."""

from twin.kernels.compiled import kernel
from twin.slots import Population

AT_ONCE = 1e-9  # of an iteration: an arrival that ends a rest is over


@kernel
def arrivals_of_iteration(p: Population, took_s: float) -> float:
    """Requests that come in an iteration of `took_s` seconds, over those of a mean one; in a rest
    (0 s): just the next one."""
    if took_s == 0.0:
        if p.instances > 1.0:  # an instance that rests gets up to `instances` times its share
            times_share = p.instances * (p.chances[0] or 1.0 / p.instances)
            p.waits[0] += p.ahead[0] * p.expected_s / times_share
        return p.ahead[0] + AT_ONCE
    if p.instances == 1.0:
        return took_s / p.expected_s
    longest = p.waits.size - 1.0
    begin = min(p.queued[0] * p.prompt_s / p.step_s, longest)
    end = min(begin + took_s / p.step_s, longest)
    for k in range(int(begin), int(end) + 1):
        p.waits[k] += (min(end, k + 1.0) - max(begin, float(k))) * p.step_s
    if p.chances[0] == 0.0:
        return took_s / p.expected_s
    share_s = p.step_s * (chance_sum(p, end) - chance_sum(p, begin))
    return p.instances * share_s / p.expected_s


@kernel
def chance_sum(p: Population, wait: float) -> float:
    """Sum of `chances` up to a wait (places in `waits`, with fractions)."""
    k = int(wait)
    before = p.chances[k - 1] if k > 0 else 0.0
    return float(before + (p.chances[k] - before) * (wait - k))
