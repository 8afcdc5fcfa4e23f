"""A graph as GraphML and back, by networkx; no reference is followed and no entity expanded."""

import json
import re
from xml.etree import ElementTree as ET

import networkx as nx

from twin.hardware.graph_text import FabricFileError, Form, GraphText

UNSOUND = (nx.NetworkXError, ET.ParseError, ValueError, LookupError, TypeError, AttributeError)


def graphml_text(graph: GraphText) -> str:
    """The graph as GraphML text by networkx; attributes of the graph that are lists become JSON."""
    about = {k: json.dumps(v) if isinstance(v, list) else v for k, v in graph.about.items()}
    nx_graph = nx.DiGraph(**about) if graph.directed else nx.Graph(**about)
    nx_graph.add_nodes_from(graph.vertices)
    nx_graph.add_edges_from(graph.links)
    return "\n".join([*nx.generate_graphml(nx_graph, prettyprint=False), ""])


def graph_of_graphml(text: str) -> GraphText:
    """Attributes, vertices and links of a graph in GraphML text; raises FabricFileError."""
    if re.search(r"<!\s*(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise FabricFileError(["A GraphML file with a DOCTYPE or entities is not read."])
    try:
        nx_graph = nx.parse_graphml(text)
    except UNSOUND as error:
        raise FabricFileError([f"The file is no GraphML: {str(error)[:100]}."]) from None
    return GraphText(
        nx_graph.graph, list(nx_graph.nodes(data=True)), list(nx_graph.edges(data=True)),
        nx_graph.is_directed(),
    )  # fmt: skip


FORM = Form("GraphML", graph_of_graphml, graphml_text, "<", "<", 4_000_000)
