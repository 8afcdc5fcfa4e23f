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
    """Returns the expected number of requests that arrive at an instance during an iteration of
    `took_s` seconds, divided by that of a mean iteration. If the instance is idle (took_s = 0), the
    result just includes the next arrival. Adds the seconds at each length of wait to `p.waits`."""
    if took_s == 0.0:
        if p.instances > 1.0:  # an instance that rests gets up to `instances` times its share
            arrival_factor = p.instances * (p.chances[0] or 1.0 / p.instances)
            p.waits[0] += p.ahead[0] * p.expected_s / arrival_factor
        return p.ahead[0] + AT_ONCE
    if p.instances == 1.0:
        return took_s / p.expected_s
    last_step = p.waits.size - 1.0
    begin_step = min(p.queued[0] * p.prompt_s / p.step_s, last_step)
    end_step = min(begin_step + took_s / p.step_s, last_step)
    for step in range(int(begin_step), int(end_step) + 1):
        p.waits[step] += (min(end_step, step + 1.0) - max(begin_step, float(step))) * p.step_s
    if p.chances[0] == 0.0:
        return took_s / p.expected_s
    chosen_s = p.step_s * (chance_sum(p, end_step) - chance_sum(p, begin_step))
    return p.instances * chosen_s / p.expected_s


@kernel
def chance_sum(p: Population, wait_steps: float) -> float:
    """Returns the running sum `p.chances` at a wait, interpolated linearly. wait_steps: the wait in
    units of `p.step_s` seconds, with a fraction."""
    step = int(wait_steps)
    chance_before = p.chances[step - 1] if step > 0 else 0.0
    return float(chance_before + (p.chances[step] - chance_before) * (wait_steps - step))
