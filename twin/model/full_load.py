"""The clocks at which pools that are always full keep a power cap."""

from __future__ import annotations

from twin.facts import Facts
from twin.hardware.power import Use, clock
from twin.model.predict import Prediction
from twin.model.prefill import prefill_hbm_bytes
from twin.scenario import Scenario, sharing


def clocks(scenario: Scenario, facts: Facts, full: Prediction) -> dict[str, float]:
    """Share of the rated clock of each role; raises HardwareError where none stays within the
    cap."""
    uses = full_load(full)
    if (guest := sharing(scenario)) is not None:
        uses = on_one_die(uses, guest.cores)
    return {role: clock(scenario, facts, role, use) for role, use in uses.items()}


def full_load(full: Prediction) -> dict[str, Use]:
    """Use of each role of a deployment that is always full."""
    uses, costs = {}, full.costs
    if full.decode is not None:
        mixed = costs.colocated_role is not None
        use = Use(float(mixed), full.decode.cube_utilisation, full.decode.hbm_utilisation)
        uses["colocated" if mixed else "decode"] = use
    if full.prefill is not None and (role := costs.prefill_role) is not None:
        hbm_bytes = prefill_hbm_bytes(role.prefill, full.prefill.batch_tokens)
        hbm = hbm_bytes / (full.prefill.batch_s * role.chip.hbm_bytes_per_s * role.dies)
        uses["prefill"] = Use(1.0, full.prefill.cube_utilisation, hbm)
    return uses


def on_one_die(uses: dict[str, Use], prefill_cores: float) -> dict[str, Use]:
    """Full load where prefill and decode compute on one die, which has one clock."""
    both_uses = uses["prefill"], uses["decode"]
    use = Use(prefill_cores, sum(one.cube for one in both_uses), sum(one.hbm for one in both_uses))
    return dict.fromkeys(uses, use)
