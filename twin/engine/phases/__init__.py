"""The phases of a step, one file each, in the order in which they run.

arrivals, front end, router, prefill (with the memory pool), KV transfer, decode; or, for colocated
instances, `colocated` in the place of the last three. What they share lies beside them: booking
(engine/books.py), the memory pool's reads and writes (pool.py, streams.py), and who shares links
with whom (traffic.py), which is settled at the end of every step.
Faults and the balancing of experts are rare; they come between two steps (engine/agenda.py).
"""
