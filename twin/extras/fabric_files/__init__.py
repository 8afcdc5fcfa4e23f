"""The whole fabric for other tools (Gephi, yEd, networkx) and back: node-link JSON and GraphML."""

from twin.hooks import FileKind, GraphForm, Section

HOOKS = (
    GraphForm("graphml", "twin.extras.fabric_files.graphml:FORM"),
    FileKind("fabric", "twin.extras.fabric_files.exchange:FABRIC"),
    Section("downloads", "twin.extras.fabric_files.section:downloads", "supernode.downloads"),
    Section("upload", "twin.extras.fabric_files.section:take_file", "supernode.upload"),
)
