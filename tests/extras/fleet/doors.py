"""What a stranger may hand in: how it is read, and sound examples."""

from twin.extras.fleet.question import FleetError, fleet_of_toml
from twin.lab.library import DATA

READERS = {"fleet": (lambda data: fleet_of_toml(data, "fleet.toml"), (FleetError,))}


def sound() -> dict[str, list[tuple[str, bytes]]]:
    files = (DATA / "examples" / f"fleet-{name}.toml" for name in ("small", "day-100"))
    return {"fleet": [("toml", path.read_bytes()) for path in files]}
