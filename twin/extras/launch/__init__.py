"""Launch files of a deployment for vLLM-Ascend, SGLang and Dynamo, with a start check."""

from twin.hooks import Command, Section

HOOKS = (
    Command("launch", "twin.extras.launch.engines:launch"),
    Section("launch", "twin.extras.launch.section:draw_launch_files", "deployment.pools"),
)
