"""ServeGen's published clients as a recorded stream of requests: a trace format."""

from twin.hooks import TraceFormat

HOOKS = (TraceFormat("servegen", "twin.extras.servegen.reader:FORMAT"),)
