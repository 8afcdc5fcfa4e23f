"""Machines from files and by name: read within limits, found, and fitted to a scenario."""

from pathlib import Path
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.graph_text import LONGEST, FabricFileError
from twin.hardware.imported import ImportedMachine, available_machine
from twin.hardware.machine_file import read_machine as machine_of
from twin.hardware.network import Network
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab.files import decode_text, printable, read_bytes
from twin.lab.store import Store, open_store
from twin.scenario import Scenario, SpecError, Supernode, field_info, seated_pools, with_overrides
from twin.scenario.words import numbered


def read_machine(source: Path | bytes, name: str | None = None) -> ImportedMachine:
    """The machine in a cable list, node-link JSON or GraphML; name: label. Raises HardwareError."""
    if isinstance(source, Path):
        name = name or source.name
        source = read_bytes(source, LONGEST, HardwareError)
    name = printable(name or "machine")
    machine_text = decode_text(source, name, LONGEST, HardwareError, "machine")
    try:
        return machine_of(machine_text, name)
    except FabricFileError as error:
        raise error.named(name) from None


def fit_to_npus(scenario: Scenario, npus: int) -> Scenario:
    """The scenario resized to at most `npus` NPUs, its pools in proportion and within fields'
    bounds. In decode the size of instances changes, in other pools their number. Raises
    SpecError."""
    pools_used = sorted(seated_pools(scenario))  # prefill last: it takes what decode leaves
    npus_now, npus_left = (
        sum(instance_count * old_npus for _, instance_count, old_npus in pools_used),
        npus,
    )
    if npus < len(pools_used):
        raise SpecError(f"{numbered(npus, 'NPU')} cannot hold {len(pools_used)} pools")
    changes: dict[str, Any] = {"deployment.placement": "packed"}
    for role, instance_count, old_npus in pools_used:
        is_last_pool = role == pools_used[-1][0]
        scaled_npus = round(npus * instance_count * old_npus / npus_now)
        pool_npus = npus_left if is_last_pool else max(1, min(npus_left - 1, scaled_npus))
        instances = (
            min(instance_count, pool_npus) if role == "decode" else max(1, pool_npus // old_npus)
        )
        pool_path = f"deployment.{role}"
        npus_each = pool_npus // instances if role == "decode" else min(old_npus, pool_npus)
        size_settings = {
            f"{pool_path}.instances": instances,
            f"{pool_path}.npus_per_instance": npus_each,
        }
        if role == "decode" and (expert_npus := scenario.deployment.decode.expert_npus):
            size_settings[f"{pool_path}.expert_npus"] = max(
                1, round(expert_npus / old_npus * npus_each)
            )
        for path, setting in size_settings.items():
            field = field_info(path)
            changes[path] = min(setting, field.high) if field and field.high else setting
        npus_left -= changes[f"{pool_path}.instances"] * changes[f"{pool_path}.npus_per_instance"]
    return with_overrides(scenario, changes)


def save_linked_machine(store: Store, scenario: Scenario) -> None:
    """Store the machine that arrived with a scenario's link, if any."""
    if scenario.supernode.imported and (machine := available_machine(scenario.supernode.machine)):
        store.machines.save(machine)


def supernode_of(name: str, facts: Facts, store: Store | None = None, chip: str = "") -> Supernode:
    """The supernode of a recipe as sold, or of a stored machine by its name or digest; chip: taken
    for a stored machine if it has as many dies per NPU. Raises HardwareError."""
    if name in recipe_names(facts):
        fields_as_sold = as_sold(name, facts)
        return Supernode.model_validate(
            {path.partition(".")[2]: value for path, value in fields_as_sold.items()}
        )
    machine_rows = store.machines.search().rows if store else []
    matching_rows = [
        row
        for row in machine_rows
        if name == row.name or (len(name) >= 8 and row.digest.startswith(name))
    ]
    if store and len(matching_rows) == 1:
        machine = store.machines.load(matching_rows[0].digest)
        chip = fitting_chip(machine, facts, chip or Supernode().chip)
        return Supernode(machine=machine.digest, chip=chip)
    raise HardwareError(
        f"{printable(name)} is no machine here: the command machine list shows them; import a file "
        "first, or name its digest where two have one name"
    )


def machine_fields(name: str, facts: Facts, chip: str) -> dict[str, Any]:
    """Fields by path that choose a machine as sold, or a stored one; chip: the present one, which
    stays if it has as many dies per NPU as the stored machine."""
    if name in recipe_names(facts):
        return as_sold(name, facts)
    supernode = supernode_of(name, facts, open_store(), chip)
    return {"supernode.machine": supernode.machine, "supernode.chip": supernode.chip}


def fitting_chip(machine: ImportedMachine, facts: Facts, preferred: str) -> str:
    """Name of a chip with as many dies per NPU as the machine; `preferred` if it or none fits."""
    fitting_chips = [chip for chip in facts.names("chips")
            if facts[f"chips.{chip}.dies_per_npu"].value == machine.dies_per_npu]  # fmt: skip
    return preferred if preferred in fitting_chips or not fitting_chips else fitting_chips[0]


def build_machine(name: str, facts: Facts, store: Store | None = None) -> Network:
    """The fabric of a recipe as sold, or of a stored machine by its name or digest."""
    return build_fabric(supernode_of(name, facts, store), facts)
