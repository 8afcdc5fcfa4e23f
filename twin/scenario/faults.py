"""What breaks while the machine serves, and how the serving stack reacts."""

from __future__ import annotations

from typing import Literal

from twin.scenario.declaration import Section, choice, element_name, quantity

REVIVE = "arXiv 2602.21140 (secondary)"


class Fault(Section):
    """One event: an element fails, its links lose capacity, or its dies compute slowly."""

    at_s: float = quantity(0.0, "s", "At", bounds=(0, 604_800), step=1)
    """When it happens."""
    element: str = element_name("Element")
    """Element as people name it: 'die 20.1.0', 'NPU 20.1', 'node 20', 'CPU 3.1', 'L1 20.3', 'L2
    3.12', 'sub-plane 3', 'RDMA network'."""
    to: str = element_name("Other end of a single link", needed=False)
    """Other end, when a single link is meant."""
    kind: Literal["fail", "derate", "slow"] = choice(
        "fail", "Kind", options={"fail": "Fails", "derate": "Derated", "slow": "Slowed"}
    )
    """The element fails; its links keep a share of their capacity; or its dies compute slowly (a
    straggler)."""
    factor: float = quantity(0.5, "x", "Left", bounds=(0.01, 1), step=0.05)
    """Share that is left: of link capacity (derate) or of computing speed (slow)."""
    duration_s: float = quantity(0.0, "s", "Lasts", bounds=(0, 604_800), step=1)
    """How long until it is repaired; 0: not within the run."""


class Recovery(Section):
    """How the serving stack reacts to faults."""

    policy: Literal["restart", "in_place", "shrink"] = choice(
        "in_place",
        "Recovery policy",
        options={"restart": "Restart", "in_place": "In place", "shrink": "Shrink"},
        source=REVIVE,
    )
    """An instance that loses a die starts anew (all its requests lose their KV), recovers in
    place (requests on surviving dies keep theirs), or goes on at once with fewer dies while lost
    experts are loaded onto the others."""
    detection_s: float = quantity(1.0, "s", "Detection time", bounds=(0, 600), source="assumption")
    """Time until a failed die or node is noticed."""
    restart_s: float = quantity(83.1, "s", "Restart time", bounds=(0, 3600), source=REVIVE)
    """Time to start an instance anew."""
    in_place_s: float = quantity(
        10.2, "s", "In-place recovery time", bounds=(0, 3600), source=REVIVE
    )
    """Time to recover in place."""
    spares: bool = choice(True, "Spare NPUs")
    """NPUs that no instance uses take the place of failed ones in restart and in_place."""
    retries: int = quantity(
        3, "retries", "Retries per request", bounds=(0, 100), source="assumption"
    )
    """How often a request that a fault threw out is tried again before it is given up."""
    lost_blocks: Literal["ssd", "lost"] = choice(
        "ssd",
        "Blocks of a failed memory server",
        options={"ssd": "Read from SSD", "lost": "Lost"},
        source="arXiv 2506.12708v2 4.4.1",
    )
    """Memory pool blocks of a failed node: read back from the SSD tier (EVS, over the VPC plane)
    at their next use, or gone."""
