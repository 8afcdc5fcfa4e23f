"""Recorded sessions of agents (WEKA, kv-cache-tester): two trace formats."""

from twin.hooks import TraceFormat

HOOKS = (
    TraceFormat("weka", "twin.extras.agent_sessions.reader:WEKA"),
    TraceFormat("kv-cache-tester parquet", "twin.extras.agent_sessions.reader:PARQUET"),
)
