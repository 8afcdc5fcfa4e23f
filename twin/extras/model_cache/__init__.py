"""The study of several models on NPU slots: starts, switches, waiting, by where weights lie."""

from twin.hooks import Command, Section

HOOKS = (
    Command("model-cache", "twin.extras.model_cache.command:model_cache"),
    Section("model cache", "twin.extras.model_cache.section:section", "deployment.memory_pool"),
)
