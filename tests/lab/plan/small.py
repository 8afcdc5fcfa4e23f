"""A small machine and a small model, whose simulations take a tenth of a second."""

import json
from functools import cache

from tests.draws import FACTOR
from twin.lab.library import load_facts
from twin.lab.plan import drive
from twin.lab.plan.question import Plan
from twin.scenario import Scenario, parse_scenario, with_overrides

BASE = {
    "name": "small", "horizon_s": 15.0, "warmup_s": 5.0,
    "supernode": {"nodes": 4},
    "workload": {"rate_req_per_s": 150.0, "input_tokens": 512, "output_tokens": 64},
    "deployment": {
        "model": "deepseek-v2-lite",
        "prefill": {"instances": 1, "npus_per_instance": 8},
        "decode": {"instances": 1, "npus_per_instance": 8, "mtp_draft_tokens": 0},
    },
    "experts": {"redundant": 0},
    "slo": {"ttft_s": 1.0, "tpot_ms": 30.0},
}  # fmt: skip
# Prefill and decode apart: the engine of colocated instances takes half a minute to compile.
VARY = ("instances", "sizes", "decode_batch")


@cache
def facts():
    """The facts, loaded once."""
    return load_facts()


def small(**changes) -> Scenario:
    """The small scenario with other values, by path with __ for dots."""
    settings = {path.replace("__", "."): value for path, value in changes.items()}
    return with_overrides(parse_scenario(BASE), settings)


def plan(scenario: Scenario | None = None, **fields) -> Plan:
    """A plan of it."""
    given = {
        "scenario": scenario or small(),
        "vary": VARY,
        "simulations": 8,
        "finalists": 2,
    } | fields
    return Plan(**given)


MEMORY = drive.Memory()  # of simulations


def brief() -> Plan:
    """The plan that is made in several ways, all with the same bytes. In the suite its runs begin
    empty, so that they are few and short, and instances have one size, since every process prices
    all sizes anew; in `make long` steady, of all sizes, with a search of the largest rate."""
    few = {"start": "empty"} if FACTOR == 1 else {}
    vary = ("instances", "decode_batch") if FACTOR == 1 else VARY
    return plan(small(**few), simulations=6, finalists=1, vary=vary)


@cache
def brief_answer() -> str:
    """Its answer in one process, as bytes; its simulations are in MEMORY."""
    return as_bytes(drive.carry_out(brief(), facts(), helpers=0, memory=MEMORY))


def as_bytes(answer: object) -> str:
    """An answer to compare with another."""
    return json.dumps(answer, sort_keys=True)
