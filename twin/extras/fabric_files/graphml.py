"""A graph as GraphML, and back. No reference out of a text is followed and no entity expanded."""

import json
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from twin.hardware.graph_text import FabricFileError, Form, GraphText

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
WORDS = {bool: "boolean", int: "long", float: "double", str: "string"}  # types in GraphML
TYPES = {"int": int, "long": int, "float": float, "double": float, "string": str}


def compose(graph: GraphText) -> str:
    """GraphML text: one line per element, keys named by their place and name."""
    about = {k: json.dumps(v) if isinstance(v, list) else v for k, v in graph.about.items()}
    kinds: dict[tuple[str, str], str] = {}

    def inside(place: str, data: Mapping[str, Any]) -> str:
        for key, value in data.items():
            kinds.setdefault((place, key), WORDS[type(value)])
        return "".join(
            f'<data key="{place}_{key}">{escape(str(value))}</data>' for key, value in data.items()
        )

    body = [inside("graph", about)]
    body += [f"<node id={quoteattr(v)}>{inside('node', data)}</node>" for v, data in graph.vertices]
    body += [
        f"<edge source={quoteattr(a)} target={quoteattr(b)}>{inside('edge', data)}</edge>"
        for a, b, data in graph.links
    ]
    keys = [
        f'<key id="{place}_{key}" for="{place}" attr.name="{key}" attr.type="{kind}"/>'
        for (place, key), kind in kinds.items()
    ]
    head = ['<?xml version="1.0" encoding="utf-8"?>', f'<graphml xmlns="{NAMESPACE}">', *keys]
    head.append(f'<graph edgedefault="{"directed" if graph.directed else "undirected"}">')
    return "\n".join([*head, *body, "</graph>", "</graphml>", ""])


def parse(text: str) -> GraphText:
    """Contents of a GraphML text; raises FabricFileError."""
    if re.search(r"<!\s*(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise FabricFileError(["A GraphML file with a DOCTYPE or entities is not read."])
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise FabricFileError([f"The file is not XML: {str(error)[:100]}."]) from None
    keys = {
        e.get("id", ""): (e.get("attr.name", ""), TYPES.get(e.get("attr.type", ""), str))
        for e in root
        if _tag(e) == "key"
    }
    graph = next((e for e in root if _tag(e) == "graph"), None)
    if graph is None:
        raise FabricFileError(["The file is no GraphML: it has no element `graph`."])
    nodes, edges = ([e for e in graph if _tag(e) == kind] for kind in ("node", "edge"))
    return GraphText(
        _data(graph, keys), [(e.get("id", ""), _data(e, keys)) for e in nodes],
        [(e.get("source", ""), e.get("target", ""), _data(e, keys)) for e in edges],
        graph.get("edgedefault") == "directed",
    )  # fmt: skip


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _data(element: ET.Element, keys: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Attributes of a graph or an edge, by name; an invalid number stays text."""
    attributes: dict[str, Any] = {}
    for e in element:
        if _tag(e) == "data" and (key := keys.get(e.get("key", ""))):
            name, made = key
            text = (e.text or "").strip()
            try:
                attributes[name] = made(text)
            except ValueError:
                attributes[name] = text
    return attributes


FORM = Form("GraphML", parse, compose, "<", "<", 4_000_000)
