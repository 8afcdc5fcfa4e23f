"""A server that has the small plan carried out in a folder, to be killed."""

import sys
import time
from pathlib import Path

from tests.lab.plan.small import brief, facts
from twin.lab.plan.drive import Plans, version_of


def small_plans(folder: Path) -> Plans:
    """The plans of a folder."""
    return Plans(folder, version_of(facts()))


def main() -> None:
    """Begin the plan, or go on with it, until there is an answer."""
    folder = Path(sys.argv[1])
    plans = small_plans(folder)
    key = plans.start(brief())
    # "Interrupted" is also what it is before its process has begun.
    while not (look := plans.state_of(key)).answer and (
        look.working or "interrupt" in look.problem
    ):
        time.sleep(0.2)  # each look reads what the plan has written
    sys.exit(look.problem or None)


if __name__ == "__main__":
    main()
