"""What a stranger may hand in: how it is read, and sound examples."""

from twin.extras.fabric_files.exchange import read_fabric, write_fabric
from twin.hardware.chip import HardwareError
from twin.lab.library import load_facts
from twin.lab.machines import built_machine

READERS = {
    name: (lambda data, kind=kind: read_fabric(data.decode("utf-8", "replace"), kind, load_facts()),
           (HardwareError,))
    for name, kind in (("fabric", "json"), ("fabric graph", "graphml"))
}  # fmt: skip


def sound() -> dict[str, list[tuple[str, bytes]]]:
    fabric = built_machine("hgx-h20", load_facts())
    return {
        "fabric": [("json", write_fabric(fabric, "json").encode())],
        "fabric graph": [("xml", write_fabric(fabric, "graphml").encode())],
    }
