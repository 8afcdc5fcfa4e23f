"""Launch files: every option is one that the engine takes, and ranks add up."""

import json
import shlex
import shutil
import subprocess

import pytest

from tests.draws import some
from twin.extras.launch.engines import ENGINES, LaunchError, instance_kinds, launch_files
from twin.extras.launch.section import tar_bytes
from twin.lab.library import load_facts, preset, presets
from twin.scenario import with_overrides

FACTS = load_facts()
KEYS = [p.key for p in presets()]
# Kinds of values: a flag has none.
VLLM: dict[str, type] = {
    "--host": str, "--port": int, "--served-model-name": str, "--trust-remote-code": bool,
    "--data-parallel-size": int, "--data-parallel-size-local": int,
    "--data-parallel-start-rank": str, "--data-parallel-address": str,
    "--data-parallel-rpc-port": int, "--headless": bool, "--tensor-parallel-size": int,
    "--enable-expert-parallel": bool, "--max-num-seqs": int, "--max-num-batched-tokens": int,
    "--quantization": str, "--gpu-memory-utilization": float, "--enforce-eager": bool,
    "--enable-prefix-caching": bool, "--no-enable-prefix-caching": bool,
    "--speculative-config": dict, "--additional-config": dict, "--compilation-config": dict,
    "--kv-transfer-config": dict, "--pipeline-parallel-size": int,
    "--prefill-context-parallel-size": int, "--decode-context-parallel-size": int,
}  # fmt: skip
SGLANG: dict[str, type] = {
    "--model-path": str, "--served-model-name": str, "--host": str, "--port": int,
    "--trust-remote-code": bool, "--tp-size": int, "--dp-size": int,
    "--enable-dp-attention": bool, "--ep-size": int, "--moe-a2a-backend": str,
    "--deepep-mode": str, "--attention-backend": str, "--quantization": str,
    "--dist-init-addr": str, "--nnodes": int, "--node-rank": str, "--mem-fraction-static": float,
    "--max-running-requests": int, "--chunked-prefill-size": int, "--cuda-graph-max-bs": int,
    "--disable-cuda-graph": bool, "--enable-two-batch-overlap": bool,
    "--disable-radix-cache": bool, "--speculative-algorithm": str, "--speculative-num-steps": int,
    "--speculative-eagle-topk": int, "--speculative-num-draft-tokens": int, "--enable-eplb": bool,
    "--ep-num-redundant-experts": int, "--disaggregation-mode": str,
    "--disaggregation-transfer-backend": str, "--disaggregation-bootstrap-port": int,
    "--enable-prefill-delayer": bool, "--prefill-delayer-max-delay-passes": int,
    "--pp-size": int, "--dcp-size": int, "--enable-prefill-cp": bool, "--attn-cp-size": int,
    "--enable-dynamic-chunking": bool,
}  # fmt: skip
OPTIONS: dict[str, dict[str, type]] = {"vllm-ascend": VLLM, "sglang": SGLANG, "dynamo": SGLANG}


def options_in(text):
    """The options of a script or a manifest's arguments, each with its value."""
    parts = text if isinstance(text, list) else shlex.split(text)
    found = {}
    for word, after in zip(parts, [*parts[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = True if after.startswith("--") else after
    return found


def command_of(text):
    """A script without its head, in one line; what the shell computes stands for 0."""
    body = text[text.index("\nvllm serve" if "vllm serve" in text else "\npython3 -m") + 1 :]
    body = body.replace('$( [ "$NODE" -gt 0 ] && echo --headless )', "--headless")
    return body.replace("\\\n", " ")


def checked(engine, options):
    for flag, value in options.items():
        kind = OPTIONS[engine][flag]  # KeyError: no such option
        if kind is bool:
            assert value is True, flag
        elif kind is dict:
            assert isinstance(json.loads(value), dict), flag
        elif kind is not str:
            kind(value)


@pytest.mark.parametrize("every", some([7], 1))
@pytest.mark.parametrize("engine", ENGINES)
def test_every_preset_gives_commands_of_known_options_or_one_sentence(engine, every):
    written = 0
    for key in [*KEYS[::every], "gb200-nvl72-decode", "quickstart"]:
        s = preset(key)
        try:
            found = launch_files(s, FACTS, engine)
        except ValueError as refusal:
            assert "\n" not in str(refusal) and "take " in str(refusal), key
            continue
        written += 1
        for name, text in found.files.items():
            if name.endswith(".json"):
                services = json.loads(text)["spec"]["services"]
                for role in instance_kinds(s, FACTS):
                    main = services[role.role]["extraPodSpec"]["mainContainer"]
                    checked(engine, options_in(main["args"]))
            else:
                checked(engine, options_in(command_of(text)))
        assert found.checks and found.left_out
    assert written


@pytest.mark.parametrize("engine", ["vllm-ascend", "sglang"])
def test_a_model_without_experts_is_started_as_copies_over_dies(engine):
    """No option of experts, whatever the scenario says of balancing; TP of a rank's dies."""
    s = with_overrides(preset("dense-qwen3-32b"), {"experts.balancing.policy": "periodic"})
    for name, text in launch_files(s, FACTS, engine).files.items():
        assert not any(word in text for word in ("expert", "eplb", "--ep-", "moe", "deepep"))
        if not name.endswith(".json"):
            options = options_in(command_of(text))
            size = "--tensor-parallel-size" if "vllm" in engine else "--tp-size"
            assert options[size] == "4" and "--enable-dp-attention" not in options


def test_a_rank_over_several_nodes_is_refused_where_scripts_start_whole_ranks_on_a_node():
    s = preset("million-tokens")
    with pytest.raises(LaunchError, match="2 data-parallel ranks of 128 dies .* take sglang"):
        launch_files(s, FACTS, "vllm-ascend")
    assert "Ports of a node: 7100 to 7100," in launch_files(s, FACTS, "sglang").checks[-1]


def test_copies_of_experts_and_limits_of_admission_that_files_lack_are_named():
    found = launch_files(preset("quickstart"), FACTS, "sglang")
    assert any(text.startswith("32 redundant experts: ") for text in found.left_out)
    assert any(text.startswith("decode: 256 experts are not") for text in found.checks)
    of_another_engine = launch_files(preset("quickstart"), FACTS, "vllm-ascend").checks
    assert of_another_engine and not any("SGLang" in text for text in of_another_engine)
    moving = {"experts.balancing.policy": "periodic", "experts.redundant": 64,
              "admission.in_flight": 400}  # fmt: skip
    found = launch_files(with_overrides(preset("quickstart"), moving), FACTS, "sglang")
    assert not any("redundant" in text for text in found.left_out)
    assert any(text.startswith("Admission") for text in found.left_out)
    assert not any(text.startswith("decode: 320 experts") for text in found.checks)


def test_ranks_batches_and_graphs_are_those_of_the_scenario():
    s = preset("quickstart")
    prefill, decode = instance_kinds(s, FACTS)
    d = s.deployment
    assert decode.ranks == 2 * d.decode.npus_per_instance == 16 * decode.nodes
    assert decode.sequences * 2 == d.decode.batch_per_npu
    assert decode.graph_sizes[-1] == decode.pass_tokens == decode.sequences * (1 + decode.drafts)
    assert prefill.data_parallel * prefill.tensor_parallel == prefill.ranks
    options = options_in(command_of(launch_files(s, FACTS, "vllm-ascend").files["decode.sh"]))
    assert int(options["--data-parallel-size"]) == decode.ranks
    assert int(options["--max-num-seqs"]) == decode.sequences
    kv = json.loads(options["--kv-transfer-config"])
    assert kv["kv_connector_extra_config"]["decode"] == {"dp_size": decode.ranks, "tp_size": 1}


def test_dies_that_share_a_prompt_are_tensor_parallel_and_hold_its_share_of_requests():
    mixed = {"deployment.mode": "colocated", "deployment.colocated.npus_per_instance": 16,
             "deployment.colocated.instances": 2}  # fmt: skip
    s = with_overrides(preset("quickstart"), mixed)
    (whole,) = instance_kinds(s, FACTS)
    (split,) = instance_kinds(with_overrides(s, {"deployment.colocated.prompt_dies": 8}), FACTS)
    assert (whole.tensor_parallel, split.tensor_parallel, split.data_parallel) == (1, 8, 4)
    assert split.sequences == 8 * whole.sequences and split.tokens == 8 * whole.tokens
    with pytest.raises(LaunchError, match="take 4"):
        instance_kinds(with_overrides(s, {"deployment.colocated.prompt_dies": 12}), FACTS)


@pytest.mark.parametrize(("engine", "names"), [
    ("vllm-ascend", ("--pipeline-parallel-size", "--prefill-context-parallel-size",
                     "--decode-context-parallel-size", "--tensor-parallel-size")),
    ("sglang", ("--pp-size", "--attn-cp-size", "--dcp-size", "--tp-size")),
])  # fmt: skip
def test_contexts_and_stages_are_the_engines_own_options(engine, names):
    """Ranks of prefill: 2 stages of 2 pieces of 4 dies that split heads, twice."""
    s = with_overrides(preset("quickstart"), {
        "deployment.prefill.attention": "tp", "deployment.prefill.tp_dies": 4,
        "deployment.prefill.cp_dies": 2, "deployment.prefill.pp_stages": 2,
        "deployment.prefill.chunk_tokens": 8192, "deployment.prefill.chunk_evening": 0.65,
        "deployment.decode.tp_dies": 4, "deployment.decode.cp_dies": 4,
    })  # fmt: skip
    prefill, decode = instance_kinds(s, FACTS)
    assert prefill.ranks == 32 == prefill.data_parallel * 2 * 2 * 4 and prefill.data_parallel == 2
    assert decode.data_parallel * decode.tensor_parallel == decode.ranks
    found = launch_files(s, FACTS, engine)
    first, second = (
        options_in(command_of(found.files[name])) for name in ("prefill.sh", "decode.sh")
    )
    stages, prefill_cp, decode_cp, heads = names
    checked(engine, first | second)
    assert (first[stages], first[prefill_cp], second[decode_cp]) == ("2", "2", "4")
    assert first[heads] == ("4" if "vllm" in engine else "16")
    assert not {stages, prefill_cp} & set(second) and decode_cp not in first
    assert any("SMOOTH_FACTOR" in line for line in found.left_out)


@pytest.mark.parametrize(("engine", "stages", "total", "tokens"), [
    ("vllm-ascend", "--pipeline-parallel-size", "--max-num-seqs", "--max-num-batched-tokens"),
    ("sglang", "--pp-size", "--max-running-requests", "--chunked-prefill-size"),
])  # fmt: skip
def test_stages_of_mixed_serving_share_requests_and_have_passes_of_their_own(
    engine, stages, total, tokens
):
    """An engine of 2 stages of 8 dies: 16 dies' requests in all, and a pass of half of them with
    half an iteration's prompt tokens."""
    s = with_overrides(preset("quickstart"), {
        "deployment.mode": "colocated", "deployment.colocated.npus_per_instance": 8,
        "deployment.decode.tp_dies": 8, "deployment.decode.pp_stages": 2,
        "deployment.decode.mtp_draft_tokens": 0, "deployment.decode.batch_per_npu": 32,
        "deployment.colocated.chunk_tokens_per_npu": 512, "deployment.decode.experts_tp": 8,
    })  # fmt: skip
    options = options_in(command_of(launch_files(s, FACTS, engine).files["colocated.sh"]))
    checked(engine, options)
    assert (options[stages], options[total]) == ("2", str(32 * 8))
    assert int(options[tokens]) == 512 * 8 // 2 + 32 * 8 // 2


def test_prompts_that_wait_are_sglangs_prefill_delayer():
    mixed = {"deployment.mode": "colocated", "deployment.colocated.npus_per_instance": 16,
             "deployment.colocated.prompt_delay": 30}  # fmt: skip
    s = with_overrides(preset("quickstart"), mixed)
    options = options_in(command_of(launch_files(s, FACTS, "sglang").files["colocated.sh"]))
    assert options["--prefill-delayer-max-delay-passes"] == "30"
    assert "--enable-prefill-delayer" in options
    assert any(
        "wait for other ranks" in line for line in launch_files(s, FACTS, "vllm-ascend").left_out
    )


def test_prompts_that_are_received_now_and_then_are_sglangs_interval():
    mixed = {"deployment.mode": "colocated", "deployment.colocated.npus_per_instance": 16}
    always = with_overrides(preset("quickstart"), mixed)
    s = with_overrides(always, {"deployment.colocated.receive_every": 30})
    for scenario, interval in ((always, None), (s, "30")):
        options = options_in(
            command_of(launch_files(scenario, FACTS, "sglang").files["colocated.sh"])
        )
        assert options.get("--scheduler-recv-interval") == interval
    assert any("received once" in line for line in launch_files(s, FACTS, "vllm-ascend").left_out)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("engine", ["vllm-ascend", "sglang"])
def test_a_script_runs_in_a_shell_and_passes_what_is_written(engine, tmp_path):
    """With a stand-in for the engine, on the second node of an instance."""
    text = launch_files(preset("quickstart"), FACTS, engine).files["decode.sh"]
    (tmp_path / "run.sh").write_text(text)
    for name in ("vllm", "python3"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MODEL": "/a model", "HEAD_IP": "10.0.0.1",
           "NODE": "1", "INSTANCE": "3"}  # fmt: skip
    run = ["bash", str(tmp_path / "run.sh")]
    words = subprocess.run(run, env=env, check=True, capture_output=True, text=True).stdout
    said = words.splitlines()
    assert "/a model" in said
    if engine == "vllm-ascend":
        assert "--headless" in said
        assert said[said.index("--data-parallel-start-rank") + 1] == "16"
        assert json.loads(said[said.index("--kv-transfer-config") + 1])["engine_id"] == "3"
    else:
        assert said[said.index("--node-rank") + 1] == "1"
        assert said[said.index("--dist-init-addr") + 1] == "10.0.0.1:12321"


@pytest.mark.parametrize(
    ("engine", "settings", "sentence"),
    [
        ("mindie", {}, "mindie is no engine here: take one of vllm-ascend, sglang, dynamo"),
        ("dynamo", {}, "dynamo does not run on ascend-910c: take vllm-ascend or sglang"),
        ("sglang", {"deployment.decode.npus_per_instance": 84}, "take a multiple of 8 NPUs"),
        ("sglang", {"supernode.kinds": [{"chip": "h800", "nodes": 24}],
                    "deployment.decode.chip": "h800"}, "not for ascend-910c and h800: write those"),
        ("dynamo", {"supernode.kinds": [{"chip": "h800", "nodes": 24}],
                    "deployment.decode.chip": "h800"}, "dynamo does not run on ascend-910c"),
    ],
)  # fmt: skip
def test_what_cannot_be_launched_is_one_sentence(engine, settings, sentence):
    with pytest.raises(LaunchError, match=sentence):
        launch_files(with_overrides(preset("quickstart"), settings), FACTS, engine)


def test_what_an_engine_is_not_told_is_listed():
    found = launch_files(preset("attention-offload"), FACTS, "vllm-ascend")
    assert any(sentence.startswith("Attention offload") for sentence in found.left_out)


def test_an_archive_of_the_same_files_has_the_same_bytes():
    first, second = (launch_files(preset("quickstart"), FACTS, "sglang") for _ in range(2))
    assert tar_bytes(first) == tar_bytes(second)


def test_ranks_that_gather_tokens_on_nvidia_name_no_exchange():
    s = preset("gb200-nvl72-decode")
    off = with_overrides(s, {"deployment.communication.fused": False})
    named, none = (
        options_in(command_of(launch_files(one, FACTS, "sglang").files["decode.sh"]))
        for one in (s, off)
    )
    assert named.pop("--moe-a2a-backend") == "deepep" and named.pop("--deepep-mode")
    assert none == named


@pytest.mark.parametrize(("is_on", "tp_dies", "is_set"), [(1, 8, 1), (0, 8, 0), (1, 1, 0)])
def test_flash_comm_of_mixed_ranks_is_a_variable_of_vllm_ascend(is_on, tp_dies, is_set):
    s = with_overrides(preset("quickstart"), {
        "deployment.mode": "colocated", "deployment.colocated.npus_per_instance": 32,
        "deployment.decode.tp_dies": tp_dies, "deployment.optimisations.flash_comm": bool(is_on),
    })  # fmt: skip
    script = launch_files(s, FACTS, "vllm-ascend").files["colocated.sh"]
    assert ("export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\nvllm serve" in script) == bool(is_set)
