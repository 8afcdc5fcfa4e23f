"""An own controller that moves one instance at a time, by latency and by work in hand.

Copy it into the folder that TWIN_CONTROLLERS names. `decide` gets a dict: the fields of `Seen` in
twin/policies/controllers.py, with each pool by its role in place of `pools`, and those of `Rule` as
`rule`. It returns how many instances of each pool it wants: the same for the same metrics, so
without a clock, random numbers or a memory of its own.
"""


def decide(seen):
    """One more instance for a pool whose latency is above its SLO, one less far below it."""
    wanted = {}
    for role in ("prefill", "decode", "colocated"):
        if role not in seen:
            continue
        pool = seen[role]
        count = pool["serving"] + pool["starting"]
        if pool["latency"] > 0.9 or pool["in_hand"] > 1.0:
            count += 1
        elif pool["latency"] < 0.5 and pool["busy"] < 0.4:
            count -= 1
        wanted[role] = max(count, 1)
    return wanted
