"""The study of wires: the same chips, deployment and traffic on machines wired otherwise."""

from twin.hooks import Section

HOOKS = (Section("Other wires", "twin.extras.wires.section:other_wires", "supernode.tab"),)
