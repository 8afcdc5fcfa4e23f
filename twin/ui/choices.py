"""What a person calls the options of a field: words only, by option and where needed by field."""

from __future__ import annotations

CHOICES = {
    "closed_loop": "Closed loop",
    "uniform": "Uniform",
    "none": "Nothing",
    "shared": "Shared",
    "sp_tp_sp": "SP-TP-SP",
    "tp": "Tensor parallel",
    "dp": "Data parallel",
    "as_stated": "As stated",
    "c_eval": "C-Eval",
    "gsm8k": "GSM8K",
    "mmlu": "MMLU",
    "eplb": "EPLB",
    "prefill_only": "Prefill only",
    "decode_only": "Decode only",
    "deepseek-r1": "DeepSeek-R1",
    "ascend-910c": "Ascend 910C",
    "fixed": "Fixed",
    "plain": "As the machine alone",
    "sglang-npu": "SGLang on Ascend",
    "tensorrt-llm": "TensorRT-LLM",
    "tensorrt-llm-streaming": "TensorRT-LLM, streaming",
    "servegen-deepseek-r1": "ServeGen DeepSeek-R1",
    "mooncake-conversation": "Mooncake conversation",
    "deepseek-service": "DeepSeek service",
    "azure-2023-conv": "Azure 2023 conversation",
    "sharegpt": "ShareGPT",
    "arxiv-summarisation": "arXiv summarisation",
} | {name: name.upper() for name in ("ub", "rdma", "vpc", "int8", "bf16", "fp8", "fp4")}
# The same word in two fields can mean two things.
CHOICES_OF = {
    "deployment.decode.rank_choice": {
        "kv_and_requests": "Fewest KV tokens and requests",
        "kv_tokens": "Fewest KV tokens",
        "requests": "Fewest requests",
        "round_robin": "In turn",
    },
    "workload.prefix": {"shared": "A popular prefix", "sessions": "Sessions"},
    "workload.arrivals": {"trace": "Recorded trace", "uniform": "Evenly spaced"},
    "supernode.scale_up": {"supernode": "The whole supernode", "node": "One node"},
}
# Choices that are names in data/, by where they lie, and those that are not beside them.
FILES = {
    "supernode.chip": "chips",
    "deployment.model": "models",
    "deployment.stack": "stacks",
    "workload.lengths": "workloads",
}
NO_FILE = {"workload.lengths": ["fixed"], "deployment.stack": ["plain"]}
