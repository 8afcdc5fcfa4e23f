"""What must hold between the sections of a scenario, as sentences."""

from __future__ import annotations

import math
from collections import Counter

from twin.scenario.declaration import broken_rules
from twin.scenario.deployment import AS_MACHINE
from twin.scenario.elastic import READS_MARKS
from twin.scenario.faults import MOST_FLAPS, Fault
from twin.scenario.groups import (
    is_elastic,
    offloaded_share,
    pools,
    pools_by_role,
    sharing_pool,
    supernodes_apart,
)
from twin.scenario.models import model_disagreements, npus_used, own_npus, split_models
from twin.scenario.scenario import RULES, Scenario
from twin.scenario.words import first_few, numbered


def disagreements(s: Scenario) -> list[str]:
    """A sentence for each group of fields that are within their bounds but contradict each other.
    Empty for a consistent scenario."""
    machine, memory_pool = s.supernode, s.memory_pool
    npus_needed = s.deployment.first_npu + npus_used(s)
    quota_sum = sum(tenant.pool_share for tenant in s.tenants)
    flaps = {i: _flap_count(f, s.horizon_s) for i, f in enumerate(s.faults) if f.kind == "flap"}
    problems = broken_rules(
        (s.warmup_s >= s.horizon_s,
         f"warmup_s = {s.warmup_s:,g} s must end before horizon_s = {s.horizon_s:,g} s"),
        (s.step_s > s.horizon_s,
         f"step_s = {s.step_s:,g} s must not exceed horizon_s = {s.horizon_s:,g} s"),
        # The own count of an imported machine decides.
        (npus_needed > machine.npus and not machine.imported,
         f"deployment needs {numbered(npus_needed, 'NPU')} but supernode has {machine.npus:,} "
         f"({numbered(machine.npus // machine.npus_per_node, 'node')} x {machine.npus_per_node}): "
         "add nodes or take fewer or smaller instances"),
        *((count > MOST_FLAPS,
           f"faults.{i} flaps {count:,} times: take a longer period_s or a shorter duration_s, for "
           f"at most {MOST_FLAPS:,}") for i, count in flaps.items()),
        (len({tenant.name for tenant in s.tenants}) < len(s.tenants),
         "two tenants have one name: give each its own"),
        (quota_sum > 1.0 + 1e-9,
         f"quotas of the tenants add up to {quota_sum:g} of the memory pool: at most 1 can be "
         "given"),
        (memory_pool.in_hbm and memory_pool.namespaces and len(s.tenants) > 1,
         "memory_pool.in_hbm has one prefix cache for all tenants of an instance: set "
         "memory_pool.namespaces = false, or in_hbm = false"),
        (s.experts.popularity == "imported" and not s.experts.counts.digest,
         "experts.popularity = imported needs routing counts: load a file of counts"),
        (s.workload.arrivals == "trace" and not s.workload.trace.digest,
         "workload.arrivals = trace needs a trace: load a trace file first"),
    )  # fmt: skip
    problems += _chip_disagreements(s)
    problems += _front_disagreements(s) if any(map(supernodes_apart, split_models(s))) else []
    problems += _sharing_disagreements(s) if sharing_pool(s) else []
    problems += _offload_disagreements(s)
    if s.models:
        problems += model_disagreements(s)
        rows_and_scenarios = zip(s.models, split_models(s)[1:], strict=True)
        problems += [
            f"{row.name or row.deployment.model}: {problem}"
            for row, model in rows_and_scenarios
            for problem in disagreements(model)
        ]
    return problems + (_elastic_disagreements(s) if is_elastic(s) else [])


def _chip_disagreements(s: Scenario) -> list[str]:
    """Sentences about rows of `supernode.kinds` that contradict each other, the supernode or the
    memory pool, and about pools whose chip the machine does not have, or has on too few NPUs."""
    machine = s.supernode
    if machine.imported:  # its file says what each die is
        return []
    further_nodes = sum(kind.nodes for kind in machine.kinds)
    ub_is_split = machine.scale_up == "node" or (machine.supernodes > 1 and not supernodes_apart(s))
    is_shared_pool = s.memory_pool.enabled and s.memory_pool.scope == "shared"
    reads_over_ub = is_shared_pool and s.memory_pool.plane == "ub"
    problems = broken_rules(
        (further_nodes > machine.nodes,
         f"supernode.kinds has {numbered(further_nodes, 'node')} and the supernode "
         f"{machine.nodes}: raise supernode.nodes, which counts all kinds, or take fewer nodes of "
         "a kind"),
        (len({machine.chip, *(kind.chip for kind in machine.kinds)}) <= len(machine.kinds),
         "supernode.kinds has a chip twice, or that of supernode.chip: give each kind one row "
         "and a chip of its own"),
        (machine.cpu_nodes and ub_is_split and reads_over_ub,
         "supernode.kinds has nodes of CPUs alone, whose DRAM has no NIC but that of the VPC "
         "plane, and UB does not reach it from everywhere: set memory_pool.plane = vpc, or "
         "supernode.scale_up = supernode and supernode.supernodes = 1"),
    )  # fmt: skip
    npus_by_chip: Counter[str] = Counter()
    for pool in pools_by_role(s).values():
        npus_by_chip[pool.chip] += 0 if pool.lender else pool.instances * pool.npus
    for chip, npus in npus_by_chip.items():
        if chip not in machine.chips:
            problems.append(
                f"a pool names the chip {chip} and no node has it: take one of "
                f"{', '.join(machine.chips)}, or add a row of supernode.kinds with it"
            )
        elif len(machine.chips) > 1 and npus > (chip_npus := machine.npus_with(chip)):
            problems.append(
                f"deployment needs {numbered(npus, 'NPU')} of {chip} and the machine has "
                f"{chip_npus:,}: add nodes of that kind, or take fewer or smaller instances"
            )
    return problems


def _offload_disagreements(s: Scenario) -> list[str]:
    """Sentences about settings that contradict offloaded attention; empty if none is offloaded."""
    if not offloaded_share(s):
        return []
    precision, field_name = s.deployment.precision, "deployment.decode.attention_offload"
    advice = "is not modelled: set one of them back to its default"
    return broken_rules(
        (sharing_pool(s), f"{field_name} needs prefill NPUs that are not decode's own: set "
         "deployment.prefill.on = own_npus"),
        (precision.prefill_kv not in ("as_decode", precision.kv),
         f"{field_name} reads KV where prefill left it, so it has one format: set "
         "deployment.precision.prefill_kv = as_decode"),
        (is_elastic(s), f"{field_name} beside elastic.controller {advice}"),
        (s.faults, f"{field_name} beside faults {advice}"),
    )  # fmt: skip


def _front_disagreements(s: Scenario) -> list[str]:
    """Sentences about settings that a front router of several supernodes does not allow."""
    supernodes, setting = s.supernode.supernodes, f"router.front = {s.router.front}"
    is_prefill_only = any(model.deployment.mode == "prefill_only" for model in split_models(s))
    return broken_rules(
        *((instances % supernodes,
           f"{setting} gives each of the {supernodes} supernodes an equal part of the {role} pool, "
           f"which has {numbered(instances, 'instance')}: take a multiple of {supernodes}")
          for role, instances, _ in pools(s)),
        (s.supernode.imported, f"{setting} needs a machine of a recipe"),
        (is_prefill_only,
         f"{setting} needs models that all decode, for it counts requests with a decode slot"),
    )  # fmt: skip


def _elastic_disagreements(s: Scenario) -> list[str]:
    """Sentences about settings that contradict autoscaling (instances that start and stop)."""
    elastic, supernodes, npus_at_start = s.elastic, supernodes_apart(s), own_npus(s)
    where_text = " in each supernode" if supernodes else ""
    return broken_rules(
        (0 < elastic.npus < npus_at_start,
         f"elastic.npus = {elastic.npus:,} is less than the {numbered(npus_at_start, 'NPU')} that "
         "the deployment starts with: raise it, or start with fewer instances"),
        (elastic.npus > s.supernode.npus and not s.supernode.imported,
         f"elastic.npus = {elastic.npus:,} is more than the {numbered(s.supernode.npus, 'NPU')} of "
         "the supernode"),
        (min(instances for _, instances, _ in pools(s))
         < elastic.least_instances * (supernodes or 1),
         f"each pool must start with elastic.least_instances = {elastic.least_instances} or "
         f"more{where_text}"),
        (elastic.controller in READS_MARKS and elastic.low >= elastic.high,
         f"elastic.low = {elastic.low:g} must be below elastic.high = {elastic.high:g}"),
        (s.memory_pool.enabled and s.memory_pool.scope == "local",
         "memory_pool.scope = local needs elastic.controller = fixed: an instance that stops "
         "would take its cache along"),
        (elastic.controller == "schedule" and not elastic.schedule,
         "elastic.controller = schedule needs rows of elastic.schedule"),
        (elastic.controller == "own" and not elastic.own.digest,
         "elastic.controller = own needs a file of the operator's: elastic.own.digest names it"),
    )  # fmt: skip


def _sharing_disagreements(s: Scenario) -> list[str]:
    """Sentences about settings that are not allowed when prefill instances run on decode's dies."""
    prefill, decode = s.deployment.prefill, s.deployment.decode
    setting = "deployment.prefill.on = decode_npus"
    prefills_per_decode, remainder = divmod(prefill.instances, decode.instances)
    npus_needed = prefills_per_decode * prefill.npus_per_instance
    most_npus = decode.npus_per_instance // max(prefills_per_decode, 1)
    has_prefill_seats = any(row.role == "prefill" for row in s.deployment.seats)
    return broken_rules(
        (remainder,
         f"{setting} lays as many prefill instances on each of the {decode.instances} decode "
         f"instances: take a multiple of {decode.instances} prefill instances"),
        (not remainder and npus_needed > decode.npus_per_instance,
         f"{setting} needs {numbered(npus_needed, 'NPU')} of a decode instance, which has "
         f"{decode.npus_per_instance}: take at most {numbered(most_npus, 'NPU')} a prefill "
         "instance, or fewer of them"),
        (decode.expert_npus > 0, f"{setting} needs deployment.decode.expert_npus = 0"),
        (prefill.chip not in (AS_MACHINE, decode.chip),
         f"{setting} needs deployment.prefill.chip = as_machine"),
        (is_elastic(s), f"{setting} needs elastic.controller = fixed"),
        (s.faults, f"{setting} needs no faults"),
        (has_prefill_seats and s.deployment.placement == "by_hand",
         f"{setting} needs seats of decode instances alone"),
    )  # fmt: skip


def _flap_count(fault: Fault, horizon_s: float) -> int:
    """Number of times that a flapping fault goes down within a run of `horizon_s` seconds."""
    duration_s = min(fault.duration_s or horizon_s, horizon_s - fault.at_s)
    return math.ceil(max(0.0, duration_s) / fault.period_s)


def remarks(s: Scenario) -> list[str]:
    """Sentences about allowed settings that have no effect: faults after the end of the run."""
    end_s = s.horizon_s
    fault_texts = [f"{f.where} at {f.at_s:,g} s" for f in s.faults if f.at_s >= end_s]
    sentence = f"after the end of the run at {end_s:,g} s, so never seen: {first_few(fault_texts)}"
    return [sentence] if fault_texts else []


def left_out_by_formulas(s: Scenario) -> str:
    """A sentence that names the mechanisms of this scenario that a run simulates and the formulas
    ignore; '' if there are none."""
    experts, clients = s.experts, s.clients
    moves_load = experts.shift_every_s > 0.0 or experts.drift_s > 0.0 or experts.topics > 1
    moves_load = moves_load and experts.popularity != "uniform" and experts.placement != "perfect"
    rate_and_flight_limits = [(s.admission.rate_req_per_s, s.admission.in_flight)]
    rate_and_flight_limits += [(tenant.rate_req_per_s, tenant.in_flight) for tenant in s.tenants]
    may_refuse = any(map(any, rate_and_flight_limits))
    mechanisms = broken_rules(
        (any(fault.at_s < s.horizon_s for fault in s.faults), "faults"),
        (is_elastic(s), "instances that come and go"),
        (not s.workload.profile.flat, "the swings of the load, of which they take the mean"),
        (moves_load and experts.balancing.policy != "oracle", "expert popularity that moves"),
        (may_refuse or s.admission.shed_at > 0.0, "limits that refuse requests"),
        (clients.timeout_s > 0.0 or clients.answer_timeout_s > 0.0, "clients that give up"),
        (len(s.tenants) > 1 and s.admission.order != "fifo", "the order of waiting tenants"),
    )
    mechanisms_text = " and ".join(filter(None, (", ".join(mechanisms[:-1]), *mechanisms[-1:])))
    return f"Formulas leave out {mechanisms_text}: a run has them." if mechanisms else ""


RULES.append(disagreements)
