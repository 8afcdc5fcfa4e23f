"""Expert counts from files: the command `import-counts`, and what the Deployment page reads."""

from twin.hooks import Command, Reader

HOOKS = (
    Command("import-counts", "twin.extras.count_import.reader:import_counts"),
    Reader("table of expert counts", "twin.extras.count_import.reader:read_counts"),
)
