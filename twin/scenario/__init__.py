"""The question: a frozen Scenario of sections. Every field is declared once; messages, forms, docs,
comparisons and the digest come from the declaration."""

from twin.scenario.agreement import left_out_by_formulas, remarks
from twin.scenario.clients import Admission, Tenant
from twin.scenario.declaration import FORMS, SpecError
from twin.scenario.deployment import Communication, Deployment, Optimisations, Precision
from twin.scenario.experts import Experts
from twin.scenario.faults import KINDS, Fault, FaultKind, Recovery
from twin.scenario.fields import (
    ScenarioField,
    field_info,
    field_unit,
    fields,
    form_groups,
    unmet_condition,
    value_of,
    values_by_path,
)
from twin.scenario.groups import (
    Group,
    InHost,
    Pool,
    Stage,
    chip_of,
    copies_kv,
    core_share,
    is_elastic,
    offloaded_share,
    pools,
    pools_by_role,
    seated_pools,
    sharing_pool,
    supernodes_apart,
)
from twin.scenario.identity import (
    SCHEMA_VERSION,
    json_text,
    legacy_digests,
    parse_scenario,
    scenario_digest,
    scenario_from_canonical,
    with_overrides,
)
from twin.scenario.models import (
    first_numbers,
    may_have_no_instance,
    model_names,
    npu_owners,
    npus_used,
    require_one_model,
    split_models,
)
from twin.scenario.policies import MemoryPool
from twin.scenario.scenario import Model, Scenario
from twin.scenario.supernode import NO_CHIP, ROUTINGS, Edit, NodeKind, Supernode
from twin.scenario.workload import Profile, Trace, Workload
