"""I9: who decides what happens next never sees how long an answer will be."""

import ast
from pathlib import Path

import pytest

import twin

ROOMS = Path(twin.__file__).parent
BEFORE_DECODE = (
    # The rest of the file moves rows of clients, whose turns come with their answers.
    "clients/arrivals.py:add_arrivals",
    "clients/admission.py",
    "clients/arrivals.py:run_front_end",
    "phases/router.py",
    "phases/prefill.py",
    "contention/kv_transfer.py",
)
POLICIES = ("router", "batching", "memory_pool")
FORESIGHT = {"output_tokens", "due", "joined", "calendar", "finish_s"}


def read_names(path, function=""):
    """Attributes that are read: `x.output_tokens`, but not `x.finish_s[i] = now_s`."""
    tree = ast.parse(path.read_text("utf-8"))
    if function:
        tree = next(n for n in tree.body if getattr(n, "name", "") == function)
    written = {
        id(target.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript)
    }
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and id(node) not in written
    }


@pytest.mark.parametrize("phase", BEFORE_DECODE)
def test_no_phase_before_decode_reads_an_answers_length(phase):
    path, _, function = phase.partition(":")
    assert not read_names(ROOMS / "engine" / path, function) & FORESIGHT


def test_the_decode_phase_does_and_would_be_found():
    assert read_names(ROOMS / "engine" / "phases" / "decode.py") >= {"output_tokens", "due"}


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_knows_a_clock_a_cost_or_a_world(policy):
    tree = ast.parse((ROOMS / "policies" / f"{policy}.py").read_text("utf-8"))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not {m for m in modules if m and m.startswith(("twin.engine", "twin.model"))}
    arguments = {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in n.args}
    assert not {a for a in arguments if "output" in a or "finish" in a}
