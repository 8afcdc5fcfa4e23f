"""A span of a run as a trace for ui.perfetto.dev: a command and a download of the Run page."""

from twin.hooks import Command, Section

HOOKS = (
    Command("trace", "twin.extras.perfetto.writer:trace_run"),
    Section("Trace (Perfetto)", "twin.extras.perfetto.section:draw_trace_download", "run.download"),
    Section("Trace", "twin.extras.perfetto.section:draw_trace_command", "run.request"),
)
