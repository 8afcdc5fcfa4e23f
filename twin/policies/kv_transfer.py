"""KV hand-off: which prefill die sends to which decode die, and how transfers share ports. As in
arXiv 2506.12708v2 4.3.3 every prefill rank holds the whole latent KV, and consecutive groups of
decode ranks draw from the same one."""

from __future__ import annotations

from twin.kernels.compiled import kernel


@kernel
def sending_rank(decode_rank: int, decode_ranks: int, prefill_ranks: int) -> int:
    """The prefill rank (0-based in its instance) that sends to decode_rank. With 32 prefill and 320
    decode ranks each prefill rank feeds 10 decode ranks."""
    return decode_rank * prefill_ranks // decode_ranks


@kernel
def shared_rate(capacity_out: float, flows_out: int, capacity_in: float, flows_in: int) -> float:
    """Bytes/s of one transfer: an equal share of the busier of its two ports."""
    return min(capacity_out / flows_out, capacity_in / flows_in)
