"""Small faults made on purpose, and how many of them the tests of a module notice.

`python -m tests.mutants --count 30 --seed 1` changes one place of a module at a time - a
comparison, a sign, a constant, a condition, a statement left out - and runs the module's own tests
on a copy of the project, in plain Python. It prints the share of changes that make a test fail, and
each that no test noticed: one that changes no answer is among these, for only a reader can tell.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

# Module, its own tests, and which of them plain Python has no time for.
MODULES = {
    "twin/hardware/sharing.py": ["tests/hardware/test_sharing.py"],
    "twin/policies/batching.py": ["tests/policies/test_batching.py", "-k", "not 255 and not 2000"],
    "twin/experts/eplb.py": ["tests/experts/test_eplb.py"],
    "twin/policies/memory_pool.py": ["tests/policies/test_memory_pool.py"],
}
PATIENCE_S = 240.0  # of one mutant: what goes on for longer than that was noticed too
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip
REMOVED = (ast.Assign, ast.AugAssign, ast.Expr, ast.Break, ast.Continue)


@dataclass(frozen=True)
class Mutant:
    """A module with one place changed."""

    line: int
    what: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module."""
    made = []
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for what, change in changes(node):
            other = copy.deepcopy(tree)
            target = next(n for i, n in enumerate(ast.walk(other)) if i == number)
            change(target)
            text = ast.unparse(ast.fix_missing_locations(other))
            if text != ast.unparse(tree):
                made.append(Mutant(getattr(node, "lineno", 0), what, text))
    return made


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """What can be changed at one place: in words, and how."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        other = COMPARED[type(node.ops[0])]
        yield f"{ast.unparse(node)} with {other.__name__}", lambda n: n.ops.__setitem__(0, other())
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in COMPUTED:
        other = COMPUTED[type(node.op)]
        yield f"{ast.unparse(node)} with {other.__name__}", lambda n: setattr(n, "op", other())
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield f"not ({ast.unparse(node.test)})", _negate
    if isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{ast.unparse(node)} with {other.__name__}", lambda n: setattr(n, "op", other())
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Return) and node.value is not None:
        for index, part in enumerate(ast.walk(node.value)):
            if isinstance(part, ast.Constant) and type(part.value) in (int, float):
                text = f"{ast.unparse(node)} with {part.value} one more"
                yield text, lambda n, index=index: _one_more(n.value, index)
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        for i, statement in enumerate(block if isinstance(block, list) else ()):
            documents = isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Constant
            )
            if (
                isinstance(statement, REMOVED)
                and not documents
                and not isinstance(node, ast.Module)
            ):
                yield (
                    f"without {ast.unparse(statement)}",
                    lambda n, name=name, i=i: getattr(n, name).__setitem__(i, ast.Pass()),
                )


def _negate(node: ast.AST) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]


def _one_more(tree: ast.AST, index: int) -> None:
    constant = next(n for i, n in enumerate(ast.walk(tree)) if i == index)
    constant.value += 1  # type: ignore[attr-defined]


def passes(folder: Path, words: list[str]) -> bool:
    """Whether the tests pass there; in a process that has loaded what no mutant changes."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        sys.path[0:0] = [str(folder)]
        for name in [n for n in sys.modules if n.split(".")[0] in ("twin", "tests")]:
            del sys.modules[name]
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *words]) != 0))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def killed(folder: Path, module: str, words: list[str], chosen: list[Mutant]) -> int:
    """How many mutants the tests notice; the others are told."""
    target = folder / module
    sound = target.read_text("utf-8")
    if not passes(folder, words):
        raise SystemExit(f"the tests of {module} fail as it is")
    noticed = 0
    for mutant in chosen:
        target.write_text(mutant.source, "utf-8")
        if passes(folder, words):
            sys.stdout.write(f"  not noticed: {module}:{mutant.line} {mutant.what}\n")
            sys.stdout.flush()
        else:
            noticed += 1
    target.write_text(sound, "utf-8")
    return noticed


def main() -> None:
    """Change, test and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", choices=MODULES, action="append")
    asked = parser.parse_args()
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # two mutants of one second have one time stamp
    sys.dont_write_bytecode = True
    import hypothesis  # noqa: F401 - loaded once, for all
    import networkx  # noqa: F401
    import numba  # noqa: F401
    import scipy.optimize  # noqa: F401

    with tempfile.TemporaryDirectory() as home:
        for name in ("twin", "tests", "data", "scenarios"):
            shutil.copytree(ROOT / name, Path(home) / name, ignore=shutil.ignore_patterns("*.pyc"))
        shutil.copy(ROOT / "pyproject.toml", home)
        for module in asked.module or MODULES:
            every = mutants((ROOT / module).read_text("utf-8"))
            count = min(asked.count, len(every))
            chosen = random.Random(asked.seed).sample(every, count)
            noticed = killed(Path(home), module, MODULES[module], chosen)
            sys.stdout.write(f"{module}: {noticed} of {count} noticed ({noticed / count:.0%}), "
                             f"{len(every)} possible\n")  # fmt: skip
            sys.stdout.flush()


if __name__ == "__main__":
    main()
