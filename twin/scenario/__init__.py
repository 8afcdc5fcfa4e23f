"""The question: a Scenario and its sections, inert and frozen.

Every field carries its unit, its bounds, one sentence of help and, where the default is a figure
from the world, its source. Validation messages, forms, the documentation table and the canonical
digest are all made from this one declaration. This room knows nothing about how an answer is
found, and nothing about files.
"""

from twin.scenario.declaration import (
    DIGEST,
    PAPER,
    PRINTABLE,
    Section,
    SpecError,
    choice,
    quantity,
    rows,
)
from twin.scenario.deployment import (
    Colocated,
    Communication,
    Decode,
    Deployment,
    Optimisations,
    Precision,
    Prefill,
)
from twin.scenario.experts import Balancing, Counts, Experts
from twin.scenario.faults import Fault, Recovery
from twin.scenario.policies import FrontEnd, MemoryPool, Router, Slo
from twin.scenario.scenario import (
    SCHEMA_VERSION,
    Scenario,
    canonical,
    disagreements,
    field_info,
    field_unit,
    npus_used,
    parse_scenario,
    pools,
    scenario_digest,
    with_overrides,
)
from twin.scenario.supernode import Edit, Supernode
from twin.scenario.words import explain
from twin.scenario.workload import Trace, Workload

__all__ = [
    "DIGEST",
    "PAPER",
    "PRINTABLE",
    "Section",
    "SpecError",
    "choice",
    "quantity",
    "rows",
    "Colocated",
    "Communication",
    "Decode",
    "Deployment",
    "Optimisations",
    "Precision",
    "Prefill",
    "Balancing",
    "Counts",
    "Experts",
    "Fault",
    "Recovery",
    "SCHEMA_VERSION",
    "Scenario",
    "canonical",
    "disagreements",
    "field_info",
    "field_unit",
    "npus_used",
    "parse_scenario",
    "pools",
    "scenario_digest",
    "with_overrides",
    "FrontEnd",
    "MemoryPool",
    "Router",
    "Slo",
    "Edit",
    "Supernode",
    "explain",
    "Trace",
    "Workload",
]
