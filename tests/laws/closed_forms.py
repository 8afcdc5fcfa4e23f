"""The closed forms at random seeds: `python -m tests.laws.closed_forms`.

Bar V2 of the reliability notes: the mean of 30 replications with a half-width of 1 % (95 %), and
its 99.9 % interval holds the theory. Each replication is a run of the whole product whose seed is
drawn anew every time the command is called; the suite asks the same at fixed seeds.
"""

import argparse
import math
import secrets
import sys

import numpy as np
from scipy.stats import t

from tests.engine.small import small
from tests.laws.test_closed_forms import FRONT_END, m_d_c_wait, waits
from twin.engine.simulate import simulate
from twin.lab.library import load_facts

SERVICE_S = 0.001  # of all servers together
CASES = {"M/D/1, load 0.5": (1, 0.5), "M/D/1, load 0.8": (1, 0.8), "M/D/4, load 0.8": (4, 0.8),
         "M/D/16, load 0.8": (16, 0.8)}  # fmt: skip


def replication(servers: int, load: float, seed: int, horizon_s: float) -> float:
    """Mean wait at the front end over its service time."""
    service_s = SERVICE_S * servers
    asked = {
        "seed": seed,
        "front_end.api_servers": servers,
        "front_end.service_ms": 1e3 * service_s,
        "workload.rate_req_per_s": load / SERVICE_S,
        "horizon_s": horizon_s,
    }
    answer = simulate(small(FRONT_END | asked), load_facts())
    wait_s = waits(answer, "arrival_s", "frontend_s") - service_s
    return float(wait_s.mean() / service_s)


def main() -> int:
    """Replicate each, and say which interval holds the theory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=30)
    parser.add_argument("--horizon-s", type=float, default=320.0)
    asked = parser.parse_args()
    missed = 0
    for name, (servers, load) in CASES.items():
        seeds = [secrets.randbelow(1 << 31) for _ in range(asked.replications)]
        means = np.array([replication(servers, load, seed, asked.horizon_s) for seed in seeds])
        theory = m_d_c_wait(load * servers, servers)
        error = means.std(ddof=1) / math.sqrt(means.size)
        half, wide = (float(t.ppf(q, means.size - 1)) * error for q in (0.975, 0.9995))
        holds = abs(means.mean() - theory) <= wide
        missed += not holds
        sys.stdout.write(
            f"{name}: wait {means.mean():.4f} services, theory {theory:.4f} "
            f"({means.mean() / theory - 1:+.2%}), half-width {half / theory:.2%}; the 99.9 % "
            f"interval {'holds' if holds else 'MISSES'} it (first seed {seeds[0]})\n"
        )
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
