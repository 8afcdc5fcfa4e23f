"""Workload: what requests come, when, how long, and which KV blocks their prompts share."""
