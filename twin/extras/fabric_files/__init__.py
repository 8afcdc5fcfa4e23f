"""The whole fabric for other tools (Gephi, yEd, networkx) and back: GraphML."""

from twin.hooks import GraphForm

HOOKS = (GraphForm("graphml", "twin.extras.fabric_files.graphml:FORM"),)
