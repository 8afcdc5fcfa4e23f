"""Drafters: what proposes the tokens that a decode pass verifies. MTP drafts with a layer of the
model, with its experts; n-grams come from the context, by the host, without a pass; any other has a
dense layer of its own, by its name in data/drafters.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from twin.facts import Facts
from twin.model.formats import FORMATS
from twin.model.shape import ModelError, Shape
from twin.scenario import Deployment

OWN_FORMAT = "bf16"  # of a drafter's own layer (SGLang: draft-model-quantization unquant)


@dataclass(frozen=True, slots=True)
class Drafter:
    """The drafter of a deployment."""

    passes: int  # of its layer, in an iteration
    module: bool = False  # its layer is the model's MTP module, with experts
    shape: Shape | None = None  # of a dense layer of its own
    joined: int = 0  # hidden states of the model that its first pass joins
    inputs: int = 1  # hidden states that its attention's projections read

    def split(self, dies: int) -> Drafter:
        """The drafter's part on one of `dies` that split the heads of its attention."""
        return replace(self, shape=self.shape.split(dies) if self.shape else None)

    @property
    def wider_weights(self) -> int:
        """Parameters of the drafter's attention projections for inputs beyond one hidden state."""
        return (self.inputs - 1) * self.shape.down_weights if self.shape else 0

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights of the drafter's own layer and LM head; the embedding is the model's."""
        if (shape := self.shape) is None:
            return 0.0
        layer_weights = shape.attention_weights + self.wider_weights + shape.dense_weights
        head_weights = shape.vocabulary * shape.hidden
        # Of the product that joins hidden states of the model.
        join_weights = self.joined * shape.hidden**2
        return (layer_weights + join_weights + head_weights) * FORMATS[OWN_FORMAT].weight_bytes


def drafter(d: Deployment, model: Shape, facts: Facts) -> Drafter:
    """The drafter of a deployment of `model`; ModelError if there is none of its kind for it."""
    name, draft_tokens = d.decode.drafter, d.decode.mtp_draft_tokens
    if draft_tokens and d.decode.pp_stages > 1 and d.mode != "prefill_only":
        raise ModelError(
            f"deployment.decode.pp_stages = {d.decode.pp_stages}: engines draft nothing over "
            "pipeline stages (vLLM to 0.26, SGLang): set deployment.decode.mtp_draft_tokens = 0"
        )
    if not draft_tokens or name == "ngram":
        return Drafter(0)
    if name == "mtp":
        if not model.mtp_layers:
            raise ModelError(
                f"{model.title} has no multi-token-prediction module: "
                "set deployment.decode.mtp_draft_tokens = 0 or take another "
                "deployment.decode.drafter"
            )
        return Drafter(draft_tokens, module=True)
    drafter_path = f"drafters.{name}"
    model_path = f"{drafter_path}.{d.model}"
    if f"{model_path}.heads" not in facts:
        model_names = facts.names(drafter_path)
        drafted_models = [name for name in model_names if f"{drafter_path}.{name}.heads" in facts]
        raise ModelError(
            f"deployment.decode.drafter = {name!r} has no layer for {model.title} in "
            f"data/drafters.toml: it has one for {', '.join(drafted_models)}"
        )
    sizes: dict[str, Any] = {
        size_name: facts.count(f"{model_path}.{size_name}") for size_name in facts.names(model_path)
    }
    head_dim = sizes.pop("head_dim")
    layer_shape = Shape(
        title=model.title, attention="gqa", layers=1, dense_layers=1, hidden=model.hidden,
        nope_dim=head_dim, value_dim=head_dim, max_context=model.max_context, **sizes,
    )  # fmt: skip
    hidden_states, input_states = (
        facts.count(f"{drafter_path}.{figure}") for figure in ("hidden_states", "inputs")
    )
    return Drafter(draft_tokens, False, layer_shape, hidden_states, input_states)
