"""The phases of a step that move requests through instances, one file each.

A step runs arrivals and admission (clients/), front end, router, prefill (with the memory pool), KV
transfer (contention/), decode; or, for colocated instances, `colocated` in the place of the last
three; then the sharing of links (contention/traffic.py). Amounts are recorded by engine/books.py.
Faults and the balancing of experts are rare; they come between two steps (lifecycle/agenda.py)."""
