"""A fabric as node-link JSON or GraphML, and back as a `Supernode` whose edits are the differences
of links. Other tools may take links out or change `capacity_bytes_per_s` and `latency_s`."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from twin.facts import Facts
from twin.hardware.additions import additions
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric, with_edits
from twin.hardware.graph_text import FabricFileError, GraphText, compose, parse
from twin.hardware.names import Edge, Fabric
from twin.hardware.network import Network, network
from twin.hardware.walks import FLOATS, INTS
from twin.hooks import Hook
from twin.lab.kinds import Kind, Parts
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

Links: TypeAlias = dict[Edge, tuple[float, float]]  # bytes/s and s of each link in a file

MOST_LINKS = 250_000  # of a fabric that is built to compare a file with
MOST_EDITS = 2000  # a scenario holds no more
IMPLIED = {  # by the supernode's parameters, and so left out of a file
    "domain", "rack", "grid", "forwards", "serves", "read_efficiency", "write_efficiency",
    "write_extra_s",
}  # fmt: skip
UNNAMED = (
    "The file does not say of which supernode it is: write its parameters, such as nodes and "
    "npus_per_node, as attributes of the graph."
)
PARAMETERS = tuple(name for name in Supernode.model_fields if name != "edits")


def write_fabric(fabric: Fabric, kind: str) -> str:
    """The fabric as text: "json" (node-link, as networkx writes it) or "graphml"."""
    s: Supernode = fabric.graph["supernode"]
    attributes: dict[str, Any] = {name: getattr(s, name) for name in PARAMETERS}
    changed = [edit.model_dump(exclude_defaults=True) for edit in s.edits]

    def stated(data: Mapping[str, Any]) -> dict[str, Any]:
        return {k: x for k, x in data.items() if k not in IMPLIED}

    vertices = [(v, stated(data)) for v, data in fabric.nodes(data=True)]
    rows = list(fabric.edges(data=True))
    shown = (rows[i] for i in np.sort(network(fabric).pairs[0]).tolist())
    links = [(a, b, stated(data)) for a, b, data in shown if data["capacity_bytes_per_s"] > 0.0]
    return compose(GraphText(attributes | {"edits": changed}, vertices, links), kind)


def read_fabric(text: str, kind: str, facts: Facts) -> Supernode:
    """The supernode of a file, with edits for changed links. Raises FabricFileError."""
    graph = parse(text, kind)
    parameters, vertices = graph.about, [v for v, _ in graph.vertices]
    links = _links(graph.links)
    supernode, stated = _supernode(parameters), _stated_edits(parameters)
    added = additions(stated or ())
    bare = network(build_fabric(supernode.model_copy(update={"edits": added}), facts))
    faults = [
        f"{v[:60]!r} is no element of this supernode." for v in vertices if v not in bare.number
    ]
    pair_of = {frozenset(bare.edge(i)): pair for pair, i in enumerate(bare.pairs[0].tolist())}
    faults += [
        f"No link of this supernode joins {a[:60]!r} and {b[:60]!r}."
        for a, b in links
        if frozenset((a, b)) not in pair_of
    ]
    if faults:
        raise FabricFileError(faults)
    made = _Pairs.of(bare)
    rates, waits = np.zeros(made.capacity.size), made.latency.copy()
    for ends, (rate, wait) in links.items():
        pair = pair_of[frozenset(ends)]
        rates[pair] = rate
        if rate > 0.0:
            waits[pair] = wait
    alike = stated is not None and _lead_to(bare, stated, rates, waits)
    edits = stated if alike else (*added, *_as_edits(made, rates, waits))
    return Supernode.model_validate(supernode.model_dump() | {"edits": edits})


def _supernode(parameters: Mapping[str, Any]) -> Supernode:
    known = {name: parameters[name] for name in PARAMETERS if name in parameters}
    if not known:
        raise FabricFileError([UNNAMED])
    try:
        s = Supernode.model_validate(known)
    except ValidationError as error:
        raise FabricFileError([
            f"Attribute {'.'.join(map(str, fault['loc']))} of the graph: {fault['msg']}."
            for fault in error.errors(include_url=False, include_input=False)
        ]) from None  # fmt: skip
    of_switches = s.sub_planes * (s.cpus_per_node + s.l1_uplinks)
    if s.all_nodes * (s.npus_per_node * 2 * (s.sub_planes + 3) + of_switches) > MOST_LINKS:
        raise FabricFileError(
            [f"A supernode of more than {MOST_LINKS:,} links is too large to be read from a file."]
        )
    return s


def _links(rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Links:
    links: Links = {}
    faults = []
    for a, b, data in rows:
        name = f"The link of {a[:60]!r} and {b[:60]!r}"
        if (a, b) in links or (b, a) in links:
            faults.append(f"{name} stands there twice.")
        rate, wait = (_number(data.get(key)) for key in ("capacity_bytes_per_s", "latency_s"))
        if rate is None or wait is None:
            needed = "capacity_bytes_per_s and latency_s, numbers of at least 0."
            faults.append(f"{name} needs {needed}")
        else:
            links[a, b] = rate, wait
    if faults:
        raise FabricFileError(faults)
    return links


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0.0 else None


# --- Differences as edits ------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """The links of a network, with both directions as one."""

    net: Network
    capacity: FLOATS
    latency: FLOATS

    @classmethod
    def of(cls, net: Network) -> "_Pairs":
        first, _ = net.pairs
        return cls(net, net.capacity[first], net.latency[first])

    def edge(self, pair: int) -> Edge:
        return self.net.edge(int(self.net.pairs[0][pair]))

    def at(self, element: str) -> INTS:
        return np.unique(self.net.pairs[1][self.net.links_at(element)])


def _stated_edits(parameters: Mapping[str, Any]) -> tuple[Edit, ...] | None:
    """Edits listed in a file; None without such a list."""
    stated = parameters.get("edits")
    try:
        rows = json.loads(stated) if isinstance(stated, str) else stated
        if not isinstance(rows, list) or len(rows) > MOST_EDITS:
            return None
        return TypeAdapter(tuple[Edit, ...]).validate_python(rows)
    except (ValueError, RecursionError):  # ValidationError is such
        return None


def _lead_to(bare: Network, edits: Sequence[Edit], rates: FLOATS, waits: FLOATS) -> bool:
    """Whether edits produce exactly these links."""
    try:
        now = _Pairs.of(with_edits(bare, edits))
    except HardwareError:
        return False
    alike = np.allclose(now.capacity, rates, rtol=1e-12, atol=0.0)
    open_ = rates > 0.0
    return bool(alike and np.allclose(now.latency[open_], waits[open_], rtol=1e-12))


def _as_edits(made: _Pairs, rates: FLOATS, waits: FLOATS) -> list[Edit]:
    """Few edits that turn the links as built into these, of whole elements where possible; links
    are removed last, so that one factor describes their elements."""
    factors = {"capacity": _over(rates, made.capacity), "latency": _over(waits, made.latency)}
    open_ = factors["capacity"] > 0.0
    changed = ~open_ | (factors["capacity"] != 1.0) | (factors["latency"] != 1.0)
    elements = _elements(made, changed)
    factors_of: dict[Edge, dict[str, float]] = {}
    for what, wanted in factors.items():
        for ends, factor in _by_element(made, elements, wanted.copy(), open_):
            factors_of.setdefault(ends, {})[what] = factor
    edits = [
        (a, b, f.get("capacity", 1.0), f.get("latency", 1.0)) for (a, b), f in factors_of.items()
    ]
    faults = [
        f"The links at {a} have {rate:g} times the capacity and {wait:g} times the latency as "
        "built: factors of 0 to 100 and of 0.01 to 1000 can be stored."
        for a, _, rate, wait in edits
        if rate > 100.0 or not 0.01 <= wait <= 1000.0
    ]
    removed = ~open_
    for name, links in elements:
        if not open_[links].any() and removed[links].any():
            edits.append((name, "", 0.0, 1.0))
            removed[links] = False
    edits += [(*made.edge(i), 0.0, 1.0) for i in np.flatnonzero(removed).tolist()]
    if len(edits) > MOST_EDITS:
        faults.append(f"The file differs by {len(edits)} edits, and {MOST_EDITS} are the most.")
    if faults:
        raise FabricFileError(faults)
    return [Edit(element=a, to=b, capacity_factor=r, latency_factor=w) for a, b, r, w in edits]


def _by_element(
    made: _Pairs, elements: Sequence[tuple[str, INTS]], wanted: FLOATS, open_: NDArray[np.bool_]
) -> Iterator[tuple[Edge, float]]:
    """Factors of open links: of elements by their most common factor, then of single links."""
    wanted[~open_] = 1.0
    for name, links in elements:
        remaining = links[open_[links]]
        if remaining.size < 2:
            continue
        values, counts = np.unique(wanted[remaining], return_counts=True)
        most = int(counts.argmax())
        if 2 * counts[most] > remaining.size and not _is_one(values[most]):
            yield (name, ""), float(values[most])
            wanted[remaining] /= values[most]
    for i in np.flatnonzero(~_is_one(wanted) & open_).tolist():
        yield made.edge(i), float(wanted[i])


def _is_one(factor: FLOATS) -> NDArray[np.bool_]:
    return np.abs(factor - 1.0) < 1e-13


def _elements(made: _Pairs, changed: NDArray[np.bool_]) -> list[tuple[str, INTS]]:
    """Elements with several links some of which have changed, those with most links first."""
    pairs = ((name, made.at(name)) for name in made.net.names.shown())
    elements = [(name, at) for name, at in pairs if at.size > 1 and changed[at].any()]
    return sorted(elements, key=lambda pair: -pair[1].size)


def _over(now: FLOATS, as_built: FLOATS) -> FLOATS:
    """Factors that reproduce `now` exactly where one exists; 1 where nothing was built."""
    positive = as_built > 0.0
    factors = np.ones(now.size)
    factors[positive] = now[positive] / as_built[positive]
    for towards in (0.0, np.inf):
        neighbours = np.nextafter(factors, towards)
        better = (factors * as_built != now) & (neighbours * as_built == now) & positive
        factors[better] = neighbours[better]
    return factors


@dataclass(frozen=True, slots=True)
class FabricFile:
    """Supernode of a file, with edits for the differences of its links from those as built."""

    supernode: Supernode
    digest: str = ""  # it is never stored: it becomes fields of the draft


def read_fabric_file(data: bytes, name: str) -> FabricFile:
    """Read JSON or GraphML, by the name's ending. Raises ValueError with a line for each fault."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("The file is not text in UTF-8.") from None
    try:
        kind = "json" if name.lower().endswith(".json") else "graphml"
        return FabricFile(read_fabric(text, kind, load_facts()))
    except FabricFileError as error:
        raise ValueError("\n".join(error.faults)) from None


FABRIC = Kind(
    key="fabric", reader=Hook("fabric", "twin.extras.fabric_files.exchange:read_fabric_file"),
    split=lambda f: Parts("", "fabric", {"supernode": f.supernode.model_dump(mode="json")}, {}),
    join=lambda parts: FabricFile(Supernode.model_validate(parts.about["supernode"])),
)  # fmt: skip
