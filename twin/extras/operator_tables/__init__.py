"""Facts of a chip's operators from measured tables: a command."""

from twin.hooks import Command

HOOKS = (Command("operator-facts", "twin.extras.operator_tables.chosen:operator_facts"),)
