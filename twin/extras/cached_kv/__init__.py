"""The study of cached KV: what a memory pool of any size hits, and whether reading it pays."""

from twin.hooks import Command, Section

HOOKS = (
    Command("hit-curve", "twin.extras.cached_kv.hit_curve:show_hit_curve"),
    Section("hit ratio", "twin.extras.cached_kv.section:draw_hit_curve", "workload.facts"),
    Section(
        "read or compute", "twin.extras.cached_kv.section:draw_reads", "deployment.memory_pool"
    ),
)
