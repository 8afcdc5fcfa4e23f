"""Attention of decode offloaded to prefill NPUs: whose, on which cores, and over which way.

As Adrenaline does (arXiv 2503.20552): a share of the requests that decode keeps its KV on prefill
dies. In each layer their queries, new keys and values go there, the core runs on cores that these
dies set aside, and values come back, while decode dies attend for the other requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from twin.hardware import demands
from twin.hardware.chip import HardwareError
from twin.hardware.faults import dies_without
from twin.hardware.network import Network
from twin.hardware.placement import place_instances
from twin.model.operators import ACTIVATION_BYTES
from twin.model.shape import ModelError, Shape
from twin.scenario import Deployment, Scenario, offloaded_share


@dataclass(frozen=True, slots=True)
class Offload:
    """What decode dies share out, and the way that it takes."""

    share: float  # of the requests that decode, alike on every die
    cores: float  # of a prefill die's, that are set aside
    served: float  # decode dies per prefill die: these ask all at once
    out_bytes_per_s: float  # from each decode die, when all send
    back_bytes_per_s: float
    latency_s: float  # there and back

    def kv_tokens(self, own: int, lent: int) -> int:
        """KV tokens of all requests of a decode die that has space for `own`.

        lent: what a prefill die has for others. Raises ModelError where it has nothing.
        """
        if not lent:
            raise ModelError(
                "deployment.decode.attention_offload: prefill dies need their KV space for a batch "
                "and the longest prompt, and have none to lend: lower "
                "deployment.prefill.tokens_per_npu or take kv = int8"
            )
        return int(min(own / (1.0 - self.share), lent / (self.share * self.served)))


def offload(s: Scenario, net: Network) -> Offload | None:
    """What is offloaded on this machine, over the plane of the KV hand-off; None: nothing.

    Raises HardwareError when no way of links is left.
    """
    d = s.deployment
    if (share := offloaded_share(s)) == 0.0:
        return None
    cut = dies_without(net, d.kv_transfer_plane)
    dies: dict[str, list[int]] = {"decode": [], "prefill": []}
    for i in place_instances(s, net):
        dies[i.role] += [die for die in i.die_of_rank if die not in cut]
    if not all(dies.values()):
        raise HardwareError(
            f"attention cannot be offloaded: no link of the {d.kv_transfer_plane} plane is left to "
            "the NPUs of prefill or of decode"
        )
    there = demands.hand_off(net, dies["decode"], dies["prefill"], d.kv_transfer_plane)
    back = demands.hand_off(net, dies["prefill"], dies["decode"], d.kv_transfer_plane)
    count = len(dies["decode"])
    return Offload(
        share=share,
        cores=d.prefill.lent_cores,
        served=count / len(dies["prefill"]),
        out_bytes_per_s=there.alone(net)[0] / count,
        back_bytes_per_s=back.alone(net)[0] / count,
        latency_s=there.latency_s + back.latency_s,
    )


def token_bytes(s: Shape, kv: str) -> tuple[float, float]:
    """Bytes of a token that go to the core of a layer (query and new KV), and that come back."""
    out = ACTIVATION_BYTES * s.core_query_width + s.kv_bytes_per_token_layer(kv)
    return out, ACTIVATION_BYTES * s.core_value_width


def bytes_per_token(s: Scenario, shape: Shape, kv_bytes: float) -> tuple[float, float]:
    """Of a token's KV what is handed to decode, and what its offloaded attention moves in an
    iteration: means over requests, all layers; kv_bytes: of a token."""
    share, kv = offloaded_share(s), s.deployment.precision.kv
    moved = sum(token_bytes(shape, kv)) * (kv_bytes / shape.kv_bytes_per_token_layer(kv))
    return (1.0 - share) * kv_bytes, share * moved


def kept_tokens(d: Deployment, shape: Shape, dies: int) -> int:
    """KV tokens for which a prefill die that lends space keeps some: a batch, and the longest
    prompt. Of data parallel attention each die has its own prompts, else all of them."""
    batch = d.prefill.tokens_per_npu * d.prefill.npus_per_instance
    return max(batch // dies if d.prefill.attention == "dp" else batch, shape.max_context)
