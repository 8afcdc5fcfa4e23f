"""Faults and the stack's reaction; a kind is an entry of `KINDS`, which all others read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from pydantic import field_validator

from twin.scenario.declaration import Section, choice, element_name, quantity
from twin.scenario.supernode import Edit

MOST_FLAPS = 2000  # of one fault: each is a change of every price

Spans = Iterator[tuple[float, float]]  # seconds since a fault began: in force from, to


def _span_until_repair(fault: Fault) -> Spans:
    """Yields one span (begin, end) in seconds after the fault: from 0 to its repair or infinity."""
    yield 0.0, fault.duration_s or math.inf


def _flap_spans(fault: Fault) -> Spans:
    """Yields the spans (begin, end) in seconds after the fault in which a flapping link is down."""
    repair_s = fault.duration_s or math.inf
    begins_s = (flap_number * fault.period_s for flap_number in range(MOST_FLAPS))
    for begin_s in takewhile(lambda at_s: at_s < repair_s, begins_s):
        yield begin_s, min(begin_s + fault.down_share * fault.period_s, repair_s)


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault: all that is known of it."""

    name: str
    label: str
    help: str  # one sentence
    look: Literal["out", "reduced", "slow"]  # class of colour in pictures
    says: Callable[[Fault], str]  # what the element does, for an event: "fails"
    uses: tuple[str, ...] = ()  # fields of a fault that not every kind has
    needs_to: bool = False  # whether it is of a single link or bundle, so that `to` is needed
    edit: Callable[[Fault], dict[str, Any]] | None = None  # fields of the edit of its links
    speed: Callable[[Fault], float] | None = None  # share of computing speed that its dies keep
    spans: Callable[[Fault], Spans] = _span_until_repair

    def edits(self, fault: Fault) -> tuple[Edit, ...]:
        """Edits of the fabric with the effect of this fault; empty if its links are not
        affected."""
        link_ends = {"element": fault.element, "to": fault.to}
        return (Edit(**link_ends, **self.edit(fault)),) if self.edit else ()


KINDS: dict[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind(
            "fail", "Fails",
            "The element loses all its links, or the two ends the link between them.",
            look="out", says=lambda _: "fails", edit=lambda _: {"capacity_factor": 0.0},
        ),
        FaultKind(
            "derate", "Derated", "Its links keep a share of their capacity.", look="reduced",
            says=lambda fault: f"at {fault.factor:g} x of its capacity", uses=("factor",),
            edit=lambda fault: {"capacity_factor": fault.factor},
        ),
        FaultKind(
            "slow", "Slowed", "Its dies keep a share of their computing speed: a straggler.",
            look="slow", says=lambda fault: f"computes at {fault.factor:g} x of its speed",
            uses=("factor",), speed=lambda fault: fault.factor,
        ),
        FaultKind(
            "module", "Optical module",
            "A module fails that carries several of the parallel links between the two ends.",
            look="reduced",
            says=lambda fault: f"loses {fault.links} links with an optical module",
            uses=("links",), needs_to=True, edit=lambda fault: {"links_out": fault.links},
        ),
        FaultKind(
            "flap", "Flapping",
            "Its links go down and come up again, over and over, until it is repaired.",
            look="out",
            says=lambda fault: (
                f"flaps: down for {100 * fault.down_share:g} % of every {fault.period_s:g} s"
            ),
            uses=("period_s", "down_share"), spans=_flap_spans,
            edit=lambda _: {"capacity_factor": 0.0},
        ),
    )
}  # fmt: skip


class Fault(Section):
    """One event: something happens to an element, until it is repaired."""

    at_s: float = quantity(0.0, "s", "At", (0, 604_800), step=1)
    """When it happens."""
    element: str = element_name("Element")
    """Element as people name it: 'die 20.1.0', 'NPU 20.1', 'node 20', 'rack 5', 'CPU 3.1', 'L1
    20.3', 'L2 3.12', 'sub-plane 3', 'RDMA network'."""
    to: str = element_name("Other end of a single link", needed=False)
    """Other end, when a single link is meant, or a bundle of parallel ones."""
    kind: str = choice(
        "fail", "Kind", options=lambda: {k.name: k.label for k in KINDS.values()}, closed=True
    )
    """What happens to it; docs/MACHINE.md says what each kind does."""
    factor: float = quantity(0.5, "x", "Left", (0.01, 1), step=0.05)
    """Share that is left: of link capacity (derate) or of computing speed (slow)."""
    links: int = quantity(4, "links", "Links of the module", (1, 10_000), since=2)
    """Parallel links between the two ends that the module carries (module)."""
    period_s: float = quantity(2.0, "s", "Period", (0.1, 86_400), step=0.5, since=2)
    """From one failure of a flapping link to the next (flap)."""
    down_share: float = quantity(0.5, "", "Share of time down", (0.01, 0.99), since=2)
    """How much of each period a flapping link is down (flap)."""
    duration_s: float = quantity(0.0, "s", "Lasts", (0, 604_800), step=1)
    """How long until it is repaired; 0: not within the run."""

    @field_validator("kind")
    @classmethod
    def _refuse_unknown(cls, kind: str) -> str:
        """Return the kind of fault unchanged. Raises ValueError unless it is one of `KINDS`."""
        if kind not in KINDS:
            raise ValueError(f"should be one of {', '.join(KINDS)}")
        return kind

    @property
    def where(self) -> str:
        """Names of what breaks, for people: an element, or both ends of a link."""
        return f"{self.element} - {self.to}" if self.to else self.element


class Recovery(Section):
    """How the serving stack reacts to faults."""

    policy: Literal["restart", "in_place", "shrink"] = choice("in_place", "Recovery policy")
    """An instance that loses a die starts anew (all its requests lose their KV), recovers in place
    (requests on surviving dies keep theirs), or goes on with fewer dies as soon as lost experts are
    loaded onto the others. [arXiv 2602.21140 (secondary)]"""
    detection_s: float = quantity(1.0, "s", "Detection time", (0, 600))
    """Time until a failed die or node is noticed. [assumption]"""
    restart_s: float = quantity(83.1, "s", "Restart time", (0, 3600))
    """Time to start an instance anew. [arXiv 2602.21140 (secondary)]"""
    in_place_s: float = quantity(10.2, "s", "In-place recovery time", (0, 3600))
    """Time to recover in place. [arXiv 2602.21140 (secondary)]"""
    spares: bool = choice(True, "Spare NPUs")
    """NPUs that no instance uses take the place of failed ones in restart and in_place."""
    retries: int = quantity(3, "retries", "Retries per request", (0, 100))
    """How often a request that a fault threw out is tried again before it is given up.
    [assumption]"""
    lost_blocks: Literal["ssd", "lost"] = choice(
        "ssd", "Blocks of a failed memory server", options={"ssd": "Read from SSD"}
    )
    """Memory pool blocks of a failed node: read back from the SSD tier (EVS, over the VPC plane) at
    their next use, or gone. [arXiv 2506.12708v2 4.4.1]"""
