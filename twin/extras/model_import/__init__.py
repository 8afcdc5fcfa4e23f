"""Models from a `config.json` of Hugging Face: the command `import-model`."""

from twin.hooks import Command

HOOKS = (Command("import-model", "twin.extras.model_import.reader:show_model"),)
