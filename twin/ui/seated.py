"""Who sits where in a scenario's machine, or the sentence why nobody can. Draws nothing."""

from __future__ import annotations

from twin.hardware.chip import HardwareError
from twin.hardware.network import Wiring
from twin.hardware.placement import Placement, place
from twin.scenario import Scenario
from twin.ui.fields import sentence


def seated(scenario: Scenario, fabric: Wiring) -> tuple[Placement, str]:
    """The placement; where there can be none, an empty one and why."""
    try:
        return place(scenario, fabric), ""
    except HardwareError as error:
        return Placement((), ()), sentence(str(error))
