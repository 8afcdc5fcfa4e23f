"""The study of allocation: how full tightly coupled blocks keep supernodes of several sizes."""

from twin.hooks import Command, Section

HOOKS = (
    Command("allocate", "twin.extras.allocation.study:show_allocation"),
    Section("allocation", "twin.extras.allocation.section:draw_allocation", "deployment.pools"),
)
