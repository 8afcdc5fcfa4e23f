"""Edits of a fabric as values: set at elements or links, taken back again, and told. Pure. An
element has at most one edit: what was said last holds; the order of first mention is kept."""

from collections.abc import Iterable, Sequence

from twin.hardware.fabric import Fabric, members
from twin.hardware.names import plain
from twin.scenario import Edit

MOST = 2000  # edits a scenario may hold


def change(
    edits: Sequence[Edit],
    names: Iterable[str | tuple[str, str]],
    *,
    capacity: float | None = None,
    latency: float | None = None,
) -> tuple[Edit, ...]:
    """The edits with elements, or links (two ends), set to a share of capacity or latency as built.
    What is not given stays; an edit that no longer changes anything goes."""
    kept = {_key(e): e for e in edits}
    for name in names:
        element, to = (name, "") if isinstance(name, str) else name
        here, back = (plain(element), plain(to)), (plain(to), plain(element))
        old = kept.get(here) or kept.get(back) or Edit(element=element, to=to)
        if to:
            kept.pop(back, None)
        new = old.model_dump() | {
            "element": element,
            "to": to,
            "capacity_factor": old.capacity_factor if capacity is None else capacity,
            "latency_factor": old.latency_factor if latency is None else latency,
        }
        kept[here] = Edit(**new)
    left = tuple(e for e in kept.values() if e != Edit(element=e.element, to=e.to))
    if len(left) > MOST:
        raise ValueError(f"{len(left):,} edits are more than the {MOST:,} a scenario may hold")
    return left


def restore(
    edits: Sequence[Edit], names: Iterable[str], fabric: Fabric
) -> tuple[tuple[Edit, ...], list[Edit]]:
    """The edits without those at the named elements or within them; and the wider ones that stay,
    as of a node that is edited as a whole."""
    wanted = {vertex for name in names for vertex in members(fabric, name)}
    kept, wider = [], []
    for edit in edits:
        ends = [set(members(fabric, end)) for end in (edit.element, edit.to) if end]
        if any(end <= wanted for end in ends):
            continue
        kept.append(edit)
        if not edit.to and ends[0] & wanted:
            wider.append(edit)
    return tuple(kept), wider


def _key(edit: Edit) -> tuple[str, str]:
    return plain(edit.element), plain(edit.to)


def effect(capacity: float | None, latency: float | None) -> str:
    """What an edit does, for people: 'off', '50 % of capacity', 'latency ×2'."""
    said = []
    if capacity == 0.0:
        return "off"
    if capacity is not None and capacity != 1.0:
        said.append(f"{100 * capacity:,.4g} % of capacity")
    if latency is not None and latency != 1.0:
        said.append(f"latency ×{latency:,.4g}")
    return ", ".join(said) or "as built"
