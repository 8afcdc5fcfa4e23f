"""The phases of a step, one file each, in the order in which they run.

arrivals, front end, router, prefill (with the memory pool), KV transfer, decode; or, for colocated
instances, `colocated` in the place of the last three. Last, traffic: who shares links with whom.
Faults and the balancing of experts are rare; they come between two steps (engine/agenda.py).
"""
