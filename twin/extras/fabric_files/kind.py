"""A fabric file as a value that a process apart can read: the supernode it describes."""

from dataclasses import dataclass

from twin.extras.fabric_files.exchange import read_fabric
from twin.hardware.graph_text import FabricFileError
from twin.hooks import Hook
from twin.lab.kinds import Kind, Parts
from twin.lab.library import load_facts
from twin.scenario import Supernode


@dataclass(frozen=True, slots=True)
class FabricFile:
    """The supernode of a file, its edits what the file's links differ in from those as built."""

    supernode: Supernode
    digest: str = ""  # it is never stored: it becomes fields of the draft


def read_fabric_file(data: bytes, name: str) -> FabricFile:
    """Read JSON or GraphML, by the name's ending. Raises ValueError with a line for each fault."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("The file is not text in UTF-8.") from None
    try:
        facts = load_facts()
        if name.lower().endswith(".json"):
            return FabricFile(read_fabric(text, "json", facts))
        return FabricFile(read_fabric(text, "graphml", facts))
    except FabricFileError as error:
        raise ValueError("\n".join(error.faults)) from None


FABRIC = Kind(
    key="fabric",
    reader=Hook("fabric", "twin.extras.fabric_files.kind:read_fabric_file"),
    split=lambda file: Parts(
        "", "fabric", {"supernode": file.supernode.model_dump(mode="json")}, {}
    ),
    join=lambda parts: FabricFile(Supernode.model_validate(parts.about["supernode"])),
)
