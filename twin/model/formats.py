"""Number formats of weights: a declaration each, from which bytes, peaks and steps follow. A format
is an entry of FORMATS and an option of `deployment.precision.weights`; one that chips without a
number format of 4 bits unpack first has a second entry for these, which it names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

ACTIVATION_BYTES = 2.0  # BF16 between operators


@dataclass(frozen=True, slots=True)
class Steps:
    """Work of vector cores before and after a product, in bytes that they move."""

    split: float = 0.0  # for each activation that enters
    halves: float = 0.0  # of each sum that comes as two halves, which they add up; 0: it is whole
    unpack: float = 0.0  # for each weight, which they write out for the product


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A number format of weights."""

    weight_bytes: float  # of one weight with its scales
    computes: str  # number format of its matrix products: a peak of the chip
    entry: float = 1.0  # bytes of an activation that enters a product
    linear: str = ""  # format of attention projections and dense FFN; "": the same
    shared: str = ""  # format of shared experts; "": the same
    steps: Mapping[str, Steps] = field(default_factory=dict)  # by chip family; else none
    kernels: str = ""  # of experts, by name in a chip's tables; "": those of what it computes in
    operand: str = ""  # number format that its products read the weights in, a peak of the chip
    unpacked: str = ""  # its entry on chips that have no such peak


# 4-bit integers with a scale of 64 bits for 256 weights (SGLang, NPUW4A8Int4DynamicMoEMethod). Only
# routed experts have them: attention, dense FFN and shared experts are W8A8 (MindIE 2.3, "W4A8
# mixed quantisation"; msmodelslim deepseek_w4a8_per_channel.yaml).
_W4A8_BYTES = 0.5 + 8 / 256
# On Ascend the product is one of two 4-bit numbers: an activation is split into its high and its
# low half, which meet the same weights (CANN aclnnGroupedMatmulSwigluQuantV2, "MSD, A8W4"). Twice
# the rows at the 4-bit rate, which is twice the 8-bit one, take what a product in INT8 takes; no
# weight is unpacked. An activation is read (1 B) and written as two halves (1 B); a sum comes as
# two halves in FP16.
_MSD = Steps(split=2.0, halves=2 * 2.0)
# INT4 with a BF16 scale for 32 weights in routed experts, all else in BF16 (Kimi-K2-Thinking,
# config.json: compressed-tensors, group_size 32, ignore self_attn, shared_experts, mlp). GPUs
# unpack in registers while they read. On Ascend vector cores write the weights as BF16, and the
# matrix cores read these: 2 + 2 B.
_W4A16_BYTES = 0.5 + 2 / 32
_WRITTEN_OUT = Steps(unpack=2 * ACTIVATION_BYTES)

# Values E2M1 with a scale E8M0 for 32 of them (OCP Microscaling Formats 1.0, section 5.4); of
# gpt-oss the experts alone, all else in BF16 (config.json, modules_to_not_convert). Blackwell's
# tensor cores read such weights and FP8 activations at the rate of FP8 (PTX ISA, tcgen05.mma,
# kind::mxf8f6f4; TensorRT-LLM, W4A8_MXFP4_MXFP8). Other chips unpack to BF16: GPUs in registers
# while they read (vLLM, Marlin; W4A16_MXFP4), Ascend before the product. DeepSeek-V4's own weights
# are FP8 but for the routed experts (cann-recipes-infer, deepseek_v4_inference_guide.md).
_MXFP4_BYTES = 0.5 + 1 / 32
_NVFP4_BYTES = 0.5625  # a byte of scale for 16 weights

FORMATS = {
    "int8": NumberFormat(1.0, "int8"),
    "fp8": NumberFormat(1.0, "fp8"),
    "bf16": NumberFormat(2.0, "bf16", entry=ACTIVATION_BYTES),
    "fp16": NumberFormat(2.0, "fp16", entry=ACTIVATION_BYTES),
    "fp4": NumberFormat(
        _NVFP4_BYTES, "fp4", linear="fp8", operand="fp4", unpacked="fp4_bf16"
    ),
    "fp4_bf16": NumberFormat(_NVFP4_BYTES, "bf16", ACTIVATION_BYTES, linear="fp8"),
    "mxfp4": NumberFormat(
        _MXFP4_BYTES, "fp8", linear="bf16", shared="bf16", kernels="mxfp4", operand="fp4",
        unpacked="mxfp4_bf16",
    ),
    "mxfp4_fp8": NumberFormat(
        _MXFP4_BYTES, "fp8", linear="fp8", shared="fp8", kernels="mxfp4", operand="fp4",
        unpacked="mxfp4_fp8_bf16",
    ),
    "mxfp4_fp8_bf16": NumberFormat(
        _MXFP4_BYTES, "bf16", ACTIVATION_BYTES, linear="fp8", shared="fp8",
        kernels="mxfp4_bf16", steps={"ascend": _WRITTEN_OUT},
    ),
    "mxfp4_bf16": NumberFormat(
        _MXFP4_BYTES, "bf16", ACTIVATION_BYTES, linear="bf16", shared="bf16",
        kernels="mxfp4_bf16", steps={"ascend": _WRITTEN_OUT},
    ),
    "w4a8": NumberFormat(
        _W4A8_BYTES, "int8", linear="int8", shared="int8", steps={"ascend": _MSD}
    ),
    "w4a16": NumberFormat(
        _W4A16_BYTES, "bf16", ACTIVATION_BYTES, linear="bf16", shared="bf16",
        kernels="w4a16", steps={"ascend": _WRITTEN_OUT},
    ),
}  # fmt: skip


def format_on_chip(weights: str, peaks: Collection[str]) -> str:
    """Number format of weights on a chip: unpacked if the chip cannot compute with the packed one.
    peaks: number formats for which the chip has a peak."""
    declared = FORMATS[weights]
    return declared.unpacked if declared.unpacked and declared.operand not in peaks else weights


def product_format(weights: str, peaks: Collection[str] | None = None) -> str:
    """Number format in which products with these weights are computed. peaks: number formats of a
    chip that may still have to unpack the weights; None: `weights` says whether it does."""
    if weights not in FORMATS:
        return weights
    return FORMATS[weights if peaks is None else format_on_chip(weights, peaks)].computes


def kernels_of(weights: str) -> str:
    """Name of the experts' kernels in a chip's tables, for weights in this number format."""
    return (FORMATS[weights].kernels if weights in FORMATS else "") or product_format(weights)
