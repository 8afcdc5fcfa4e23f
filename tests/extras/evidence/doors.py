"""What a stranger may hand in: how it is read, and sound examples."""

from tests.doors.on_disk import on_disk
from twin.extras.evidence.calibrate import PointsError, read_points
from twin.lab.library import DATA, load_facts

POINTS = DATA / "examples" / "measured-points.csv"
FILES = {"points": (lambda path: read_points(path, load_facts()), PointsError)}
READERS = {"points": (on_disk(FILES["points"][0], "points.csv"), (PointsError,))}


def sound() -> dict[str, list[tuple[str, bytes]]]:
    return {"points": [("csv", POINTS.read_bytes())]}


def warm() -> None:
    """The prices of a machine, for a fork to find."""
    read_points(POINTS, load_facts())
