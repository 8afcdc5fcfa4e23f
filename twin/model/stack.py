"""The serving stack: what belongs to it and not to its machine.

A stack replaces named facts by its own (data/stacks.toml): what its host takes for an iteration,
how long its kernels for dispatch and combine take to begin.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from twin.facts import Facts
from twin.model.roofline import family_of
from twin.model.shape import ModelError

PLAIN = "plain"  # the machine's own figures


@lru_cache(maxsize=16)
def of_stack(facts: Facts, stack: str, chip: str) -> Facts:
    """The facts as a stack has them; its figures keep the replaced facts' units.

    Raises ModelError for a stack that is not in data/stacks.toml, or whose figures are those of
    another family of chips.
    """
    if stack == PLAIN:
        return facts
    own = facts.group(f"stacks.{stack}")
    if not own:
        known = ", ".join([PLAIN, *facts.names("stacks")])
        raise ModelError(f"deployment.stack = {stack!r} is not in data/stacks.toml: take {known}")
    family = family_of(facts, chip)
    others = {name.split(".")[1] for name in own if name.startswith("operators.")} - {family}
    if others:
        raise ModelError(
            f"deployment.stack = {stack!r} has figures of {min(others)} chips and says nothing "
            f"of {chip}: take {PLAIN}, or another supernode.chip"
        )
    return facts.replaced(
        {name: replace(fact, unit=facts[name].unit) for name, fact in own.items()}
    )
