"""The machine: chips, one graph of what is wired to what, and prices that are read from it.

`build_fabric(supernode, facts)` gives the machine: arrays (network.py) and, on request, its graph
(fabric.py has its attributes). A demand says who sends to whom (demands.py), `load_of` routes it
over the links (flows.py; reach.py, quotient.py, walks.py), once for all that sit alike (alike.py),
and prices.py reads rate, latency and bottleneck off the load. What other rooms and the screen use:
`build_fabric`, `built`; `all_to_all`, `price_between`, `nic`, `pool_read`, `port_rates`, `summary`,
`uplink_matrix`; `place`; `with_faults` and what it leaves."""
