"""What breaks while the machine serves, and how the serving stack reacts."""

from __future__ import annotations

from typing import Literal

from twin.scenario.declaration import Section, choice, element_name, quantity

REVIVE = "arXiv 2602.21140 (secondary)"


class Fault(Section):
    """One event: an element fails, its links lose capacity, or its dies compute slowly."""

    at_s: float = quantity(0.0, "s", "When it happens.", low=0, high=604_800)
    element: str = element_name(
        "Element as people name it: 'die 20.1.0', 'NPU 20.1', 'node 20', 'CPU 3.1', 'L1 20.3', "
        "'L2 3.12', 'sub-plane 3', 'RDMA network'."
    )
    to: str = element_name("Other end, when a single link is meant.", needed=False)
    kind: Literal["fail", "derate", "slow"] = choice(
        "fail",
        "The element fails; its links keep a share of their capacity; or its dies compute slowly "
        "(a straggler).",
    )
    factor: float = quantity(
        0.5,
        "x",
        "Share that is left: of link capacity (derate) or of computing speed (slow).",
        low=0.01,
        high=1,
    )
    duration_s: float = quantity(
        0.0, "s", "How long until it is repaired; 0: not within the run.", low=0, high=604_800
    )


class Recovery(Section):
    """How the serving stack reacts to faults."""

    detection_s: float = quantity(
        1.0,
        "s",
        "Time until a failed die or node is noticed.",
        low=0,
        high=600,
        source="assumption",
    )
    policy: Literal["restart", "in_place", "shrink"] = choice(
        "in_place",
        "An instance that loses a die starts anew (all its requests lose their KV), recovers in "
        "place (requests on surviving dies keep theirs), or goes on at once with fewer dies while "
        "lost experts are loaded onto the others.",
        source=REVIVE,
    )
    restart_s: float = quantity(
        83.1, "s", "Time to start an instance anew.", low=0, high=3600, source=REVIVE
    )
    in_place_s: float = quantity(
        10.2, "s", "Time to recover in place.", low=0, high=3600, source=REVIVE
    )
    spares: bool = choice(
        True, "NPUs that no instance uses take the place of failed ones in restart and in_place."
    )
    retries: int = quantity(
        3,
        "retries",
        "How often a request that a fault threw out is tried again before it is given up.",
        low=0,
        high=100,
        source="assumption",
    )
    lost_blocks: Literal["ssd", "lost"] = choice(
        "ssd",
        "Memory pool blocks of a failed node: read back from the SSD tier (EVS, over the VPC "
        "plane) at their next use, or gone.",
        source="arXiv 2506.12708v2 4.4.1",
    )
