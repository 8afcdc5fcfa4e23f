"""A graph as text: node-link JSON or a cable list, and back, with every file mistrusted.

Text in, text out: this module opens no file, and sizes are bounded before anything is parsed. What
vertices and links mean is the matter of machine_file.py. Other forms are extras (`GraphForm`)."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from twin.hardware.chip import HardwareError
from twin.hooks import GraphForm, hooks_of
from twin.scenario.words import numbered

LONGEST = 48_000_000  # characters of a file; eight supernodes of 384 NPUs take 35 million
SHOWN = 20  # faults listed in full
NAME_OR_NUMBER = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
MOST_FAULTS = 10_000  # after which reading stops
MOST_CABLES = 500_000  # each is a link of two directions (`machine_file.MOST_LINKS`)
LONGEST_LINE = 64 << 10  # characters of a row of a table
Rows: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
LinkRows: TypeAlias = Sequence[tuple[str, str, Mapping[str, Any]]]


class FabricFileError(HardwareError):
    """A file that describes no fabric; `faults` has one sentence for each fault, up to `SHOWN`. Its
    message has one for all faults that differ in names and numbers alone. name: of the file."""

    def __init__(self, faults: Sequence[str], name: str = "") -> None:
        """faults: a sentence for each fault; name: the file's, "" if it is unknown."""
        self.faults = list(faults[:SHOWN])
        if len(faults) > SHOWN:
            self.faults.append(f"And {numbered(len(faults) - SHOWN, 'fault')} more.")
        self._all = faults
        faults_by_form: dict[str, list[str]] = {}
        for fault in faults:
            faults_by_form.setdefault(NAME_OR_NUMBER.sub("", fault), []).append(fault)
        message = " ".join(
            first_fault + (f" {numbered(len(others), 'fault')} more like this." if others else "")
            for first_fault, *others in list(faults_by_form.values())[:SHOWN]
        )
        super().__init__(f"{name}: {message}" if name else message)

    def named(self, name: str) -> FabricFileError:
        """Returns the same error with the file's name before its message."""
        return FabricFileError(self._all, name)


@dataclass(frozen=True)
class GraphText:
    """Contents of a file: attributes of the graph, its vertices and its links, by name."""

    about: Mapping[str, Any]
    vertices: Rows
    links: LinkRows
    directed: bool = False  # else a link is one of both ways


class Form(NamedTuple):
    """A text form of graphs; most: maximum number of parts, by their opening characters."""

    title: str
    parse: Callable[[str], GraphText]  # raises FabricFileError
    compose: Callable[[GraphText], str] | None  # None: it cannot say all of a graph
    begins: str  # the first character of a text; "": anything else
    opens: str
    most: int


def forms() -> dict[str, Form]:
    """Text forms of graphs by name: those of this module and of extras."""
    return FORMS | {name: hook.load() for name, hook in hooks_of(GraphForm).items()}


def compose_text(graph: GraphText, kind: str) -> str:
    """The text of a graph in the form named `kind`, such as "json"."""
    writer = forms()[kind].compose
    assert writer is not None
    return writer(graph)


def parse_text(text: str, kind: str) -> GraphText:
    """Contents of a text in the form named `kind`; raises FabricFileError if it is no such text."""
    if len(text) > LONGEST:
        raise FabricFileError([f"The file is longer than {LONGEST // 10**6} million characters."])
    form = forms()[kind]
    if sum(text.count(character) for character in form.opens) > form.most:
        raise FabricFileError([f"The file has more than {form.most:,} parts."])
    return form.parse(text)


def _to_json(graph: GraphText) -> str:
    """The graph as node-link JSON, as networkx writes it."""
    return json.dumps(
        {
            "directed": graph.directed,
            "multigraph": False,
            "graph": dict(graph.about),
            "nodes": [{**attributes, "id": vertex} for vertex, attributes in graph.vertices],
            "edges": [{**data, "source": tail, "target": head} for tail, head, data in graph.links],
        },
        allow_nan=False,
    )


def _from_json(text: str) -> GraphText:
    """Graph of a node-link JSON text. Raises FabricFileError."""
    try:
        json_body = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise FabricFileError(
            ["The file is not JSON that can be read: it is nested too deeply."]
        ) from None
    except ValueError as error:
        raise FabricFileError([f"The file is not JSON: {str(error)[:100]}."]) from None
    json_body = json_body if isinstance(json_body, dict) else {}
    graph, nodes = json_body.get("graph"), json_body.get("nodes")
    link_entries = json_body.get("edges", json_body.get("links"))
    if not (isinstance(graph, dict) and isinstance(nodes, list) and isinstance(link_entries, list)):
        raise FabricFileError(
            ["The file is no node-link JSON: it needs an object `graph` and lists `nodes` and "
             "`edges`."]
        )  # fmt: skip
    if not all(isinstance(entry, dict) for entry in (*nodes, *link_entries)):
        raise FabricFileError(["Every entry of `nodes` and of `edges` must be an object."])
    return GraphText(
        graph,
        [(str(entry.get("id")), entry) for entry in nodes],
        [(str(entry.get("source")), str(entry.get("target")), entry) for entry in link_entries],
        json_body.get("directed") is True,
    )


def _refuse_constant(name: str) -> float:
    """Raise ValueError: the JSON constants NaN, Infinity and -Infinity are not finite numbers."""
    raise ValueError(f"{name} is no number")


COLUMNS = ("from", "to", "GB/s", "ns", "plane")
SEPARATORS = ",;\t"


def _from_csv(text: str) -> GraphText:
    """Graph of a cable list: a line is a cable, both ways; a second line may state the reverse. The
    separator is the one that separates the column names most often. Raises FabricFileError."""
    lines = text.splitlines()
    separator = max(SEPARATORS, key=lines[0].count) if lines else ","
    rows = csv.reader(checked_lines(lines), delimiter=separator)
    try:
        links, faults = _read_cables(rows)
    except csv.Error as error:
        raise FabricFileError([f"The cable list breaks off: {error}."]) from None
    if faults:
        raise FabricFileError(faults)
    vertex_names = dict.fromkeys(name for tail, head, _ in links for name in (tail, head))
    return GraphText({}, [(name, {}) for name in vertex_names], links)


def checked_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a table; raises csv.Error for a line too long for a table."""
    for line in lines:
        if len(line) > LONGEST_LINE:
            raise csv.Error(f"a line is longer than {LONGEST_LINE:,} characters")
        yield line


def _read_cables(lines: Any) -> tuple[LinkRows, list[str]]:
    """(links in bytes/s and s, a sentence for each invalid row) of the rows below the header.
    lines: a csv.reader. Raises FabricFileError for missing columns or too many cables."""
    header = [name.strip().lower() for name in next(lines, [])]
    missing_columns = [name for name in COLUMNS if name.lower() not in header]
    if missing_columns:
        raise FabricFileError(
            [f"The cable list has no column {', '.join(missing_columns)}: begin with the line "
             f"{','.join(COLUMNS)}."]
        )  # fmt: skip
    column_positions = [header.index(name.lower()) for name in COLUMNS]
    name_of: dict[str, str] = {}  # each name once, however many cables it has
    data_of_cable: dict[tuple[str, ...], dict[str, Any]] = {}
    links: list[tuple[str, str, Mapping[str, Any]]] = []
    errors: list[str] = []
    for row in lines:
        if not any(cell.strip() for cell in row):
            continue
        try:
            tail, head, *attributes = (row[position].strip() for position in column_positions)
            gb_per_s, latency_ns, plane = attributes
            link_data = {
                "capacity_bytes_per_s": float(gb_per_s) * 1e9,
                "latency_s": float(latency_ns) * 1e-9,
                "plane": plane,
            }
        except (IndexError, ValueError):
            errors.append(
                f"Line {lines.line_num} is not {', '.join(COLUMNS)} with two numbers, written like "
                "28.5."
            )
            if len(errors) > MOST_FAULTS:
                break
            continue
        link_data = data_of_cable.setdefault((*attributes,), link_data)
        links.append((name_of.setdefault(tail, tail), name_of.setdefault(head, head), link_data))
        if len(links) > MOST_CABLES:
            raise FabricFileError(
                [f"A cable list of more than {MOST_CABLES:,} cables is more than a machine has."]
            )
    return links, errors


def cable_list(links: Iterable[tuple[str, str, float, float, str]]) -> str:
    """The text of a cable list; links: (from, to, bytes/s, seconds, plane) of every cable."""
    text_lines = [",".join(COLUMNS)]
    text_lines += [
        f"{tail},{head},{bytes_per_s / 1e9:.12g},{latency_s * 1e9:.12g},{plane}"
        for tail, head, bytes_per_s, latency_s, plane in links
    ]
    return "\n".join([*text_lines, ""])


FORMS = {
    "json": Form("Node-link JSON", _from_json, _to_json, "{", "{[", 1_000_000),
    "csv": Form("Cable list", _from_csv, None, "", "\n", 1_000_000),
}
