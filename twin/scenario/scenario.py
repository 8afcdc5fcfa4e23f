"""The whole question, its identity, and how it is read from plain values."""

from __future__ import annotations

import hashlib
import json
from typing import Any, get_args

from pydantic import Field, ValidationError, model_validator

from twin.scenario.declaration import PRINTABLE, Section, SpecError, quantity, rows
from twin.scenario.deployment import Deployment
from twin.scenario.experts import Experts
from twin.scenario.faults import Fault, Recovery
from twin.scenario.policies import FrontEnd, MemoryPool, Router, Slo
from twin.scenario.supernode import Supernode
from twin.scenario.words import explain
from twin.scenario.workload import Workload

SCHEMA_VERSION = 1


class Scenario(Section):
    """One question to the twin."""

    name: str = Field("untitled", max_length=120, pattern=PRINTABLE, description="Short name.")
    question: str = Field(
        "", max_length=600, pattern=PRINTABLE, description="What this scenario asks."
    )
    source: str = Field(
        "", max_length=600, pattern=PRINTABLE, description="Where its figures come from."
    )
    seed: int = quantity(1, "", "Seed of all random streams.", low=0, high=2**31 - 1)
    horizon_s: float = quantity(120.0, "s", "Simulated time.", low=0.1, high=604_800)
    warmup_s: float = quantity(
        30.0,
        "s",
        "Start of the steady-state window; earlier requests are left out of it.",
        low=0,
        high=604_800,
    )
    step_s: float = quantity(
        0.005, "s", "Step of the clock: how stale what flows backwards may be.", low=0.001, high=1.0
    )
    supernode: Supernode = Supernode()
    workload: Workload = Workload()
    deployment: Deployment = Deployment()
    front_end: FrontEnd = FrontEnd()
    router: Router = Router()
    memory_pool: MemoryPool = MemoryPool()
    experts: Experts = Experts()
    slo: Slo = Slo()
    faults: tuple[Fault, ...] = rows("What breaks, and when.", most=500)
    recovery: Recovery = Recovery()

    @model_validator(mode="after")
    def _sections_agree(self) -> Scenario:
        for problem in disagreements(self):
            raise ValueError(problem)
        return self


def disagreements(s: Scenario) -> list[str]:
    """Sentences about fields that are each in bounds but cannot hold together."""
    found = []
    if s.warmup_s >= s.horizon_s:
        found.append(f"warmup_s = {s.warmup_s:g} s must end before horizon_s = {s.horizon_s:g} s")
    if s.step_s > s.horizon_s:
        found.append(f"step_s = {s.step_s:g} s must not exceed horizon_s = {s.horizon_s:g} s")
    used = npus_used(s)
    if used > s.supernode.npus:
        found.append(
            f"deployment needs {used} NPUs but supernode has {s.supernode.npus} "
            f"({s.supernode.all_nodes} nodes x {s.supernode.npus_per_node}): "
            "add nodes or take fewer or smaller instances"
        )
    if s.experts.popularity == "imported" and not s.experts.counts.digest:
        found.append("experts.popularity = imported needs experts.counts: load a file of counts")
    if s.workload.arrivals == "trace" and not s.workload.trace.digest:
        found.append("workload.arrivals = trace needs workload.trace: load a trace file first")
    return found


def npus_used(s: Scenario) -> int:
    """NPUs that the deployment's instances occupy."""
    return sum(count * npus for _, count, npus in pools(s))


def pools(s: Scenario) -> list[tuple[str, int, int]]:
    """The pools that the deployment's mode uses: (role, instances, NPUs of an instance)."""
    d = s.deployment
    if d.mode == "colocated":
        return [("colocated", d.colocated.instances, d.colocated.npus_per_instance)]
    prefill = ("prefill", d.prefill.instances, d.prefill.npus_per_instance)
    decode = ("decode", d.decode.instances, d.decode.npus_per_instance)
    return {"prefill_only": [prefill], "decode_only": [decode]}.get(d.mode, [prefill, decode])


def canonical(s: Scenario) -> str:
    """The scenario as JSON with sorted keys: equal scenarios give equal text."""
    body = {"schema": SCHEMA_VERSION, "scenario": s.model_dump(mode="json")}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def scenario_digest(s: Scenario) -> str:
    """SHA-256 (hex) of the canonical form: the scenario's id."""
    return hashlib.sha256(canonical(s).encode()).hexdigest()


def parse_scenario(data: dict[str, Any]) -> Scenario:
    """A scenario from nested plain values; raises SpecError with one sentence."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise SpecError(explain(error, field_unit)) from None


def field_info(path: str) -> Any:
    """The declaration of a field by dotted path, or None when there is no such field.

    A row of a list is named by its number or by none: `faults.0.at_s`, `faults[].at_s`.
    """
    model: Any = Scenario
    info = None
    for part in path.replace("[]", ".0").split("."):
        if part.isdigit() and get_args(model):
            model = get_args(model)[0]
            continue
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return None
        info = fields[part]
        model = info.annotation
    return info


def field_unit(path: str) -> str:
    """Unit of a field by dotted path, '' when it has none."""
    info = field_info(path)
    return str((info.json_schema_extra or {}).get("unit", "")) if info is not None else ""


def with_overrides(s: Scenario, settings: dict[str, Any]) -> Scenario:
    """A scenario with fields replaced by dotted path; raises SpecError on an unknown path."""
    data = s.model_dump(mode="json")
    for path, value in settings.items():
        *parents, leaf = path.split(".")
        here = data
        for part in parents:
            if not isinstance(here.get(part), dict):
                raise SpecError(f"{path} is not a field of a scenario")
            here = here[part]
        if leaf not in here:
            raise SpecError(f"{path} is not a field of a scenario")
        here[leaf] = value
    return parse_scenario(data)
