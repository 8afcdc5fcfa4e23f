"""Columns: who writes one is named in its declaration; Python and compiled code see the same."""

import ast
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from tests.jit import compiled
from twin.engine import columns
from twin.kernels import compiled as kept
from twin.kernels.buffers import Columns, column, group, number

# Rooms in which something is written, or handed to who writes it.
ROOMS = ("engine", "policies", "hardware", "model")
GROUPS = {
    kind.__name__: [name for name, c in columns.World.declared.items() if c.group is kind]
    for kind in {c.group for c in columns.World.declared.values()}
}


class Pair(Columns):
    """Two columns and a number."""

    first = column("f8", "rows, 3", "Filled with nothing.")
    second = column("i4", "rows", "Filled.", fill=-1)
    step = number(float, "A number.")


class Whole(Columns):
    """A nested group."""

    pair = group(Pair)


def add(whole, row):
    pair = whole.pair
    pair.first[row, 1] += pair.step
    pair.second[row] += 2
    return pair.second.size + pair.first.shape[1]


@pytest.mark.parametrize("call", [add, compiled(add)])
def test_python_and_compiled_code_see_the_same_arrays(call):
    pair = Pair({"rows": 4}, step=0.5)
    whole = Whole(pair=pair)
    assert call(whole, 2) == 7
    assert pair.first[2].tolist() == [0.0, 0.5, 0.0]
    assert pair.second.tolist() == [-1, -1, 1, -1]
    pair.assign(second=np.arange(6, dtype=np.int32), step=2.0)
    assert call(whole, 3) == 9
    assert pair.second.tolist() == [0, 1, 2, 5, 4, 5] and pair.first[3, 1] == 2.0


def test_what_is_not_declared_or_not_given_is_refused():
    with pytest.raises(TypeError, match="step is not given"):
        Pair({"rows": 1})
    with pytest.raises(TypeError, match="declares no third"):
        Pair({"rows": 1}, step=1.0, third=2)
    with pytest.raises(TypeError, match="1 dimensions, not 2"):
        Pair({"rows": 1}, step=1.0, first=np.zeros(3))


@cache
def functions():
    """Every function of the rooms by name: (module, node); names are unique where it matters."""
    known = {}
    for room in ROOMS:
        for path in sorted((kept.SOURCES / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    known.setdefault(node.name, (path.stem, node))
    return known


class Walk(ast.NodeVisitor):
    """What one function writes: its parameters, and columns of the state."""

    def __init__(self, node, mutated):
        self.mutated, self.columns, self.parameters = mutated, set(), set()
        self.names = {}
        for a in (*node.args.args, *node.args.kwonlyargs):
            kind = ast.unparse(a.annotation) if a.annotation else ""
            of_kind = [("world", name) for name in GROUPS.get(kind, ())]
            self.names[a.arg] = ("world",) if kind == "World" else ("parameter", a.arg)
            if of_kind:
                self.names[a.arg] = of_kind[0] if len(of_kind) == 1 else ("either", *of_kind)
        for statement in node.body:
            self.visit(statement)

    def path(self, node):
        """Where a value comes from: ("world", group, column), ("parameter", name), or nothing."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Subscript):
            return self.path(node.value)
        if isinstance(node, ast.Attribute):
            if node.attr == "world":
                return ("world",)
            base = self.path(node.value)
            if base and base[0] == "world" and len(base) < 3:
                return (*base, node.attr)
            if base and base[0] == "either" and all(p and len(p) < 3 for p in base[1:]):
                return ("either", *((*p, node.attr) for p in base[1:]))
        if isinstance(node, ast.IfExp):
            return ("either", self.path(node.body), self.path(node.orelse))
        return None

    def wrote(self, path):
        if path and path[0] == "either":
            for each in path[1:]:
                self.wrote(each)
        elif path and path[0] == "world" and len(path) == 3:
            self.columns.add(path[1:])
        elif path and path[0] == "parameter":
            self.parameters.add(path[1])

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            elif isinstance(target, ast.Tuple) and isinstance(
                getattr(node.value, "body", None), ast.Tuple
            ):
                either = zip(node.value.body.elts, node.value.orelse.elts, strict=True)
                values = [ast.IfExp(node.value.test, a, b) for a, b in either]
                pairs = list(zip(target.elts, values, strict=True))
            for to, value in pairs:
                if isinstance(to, ast.Subscript):
                    self.wrote(self.path(to.value))
                elif isinstance(to, ast.Name):
                    self.names[to.id] = self.path(value)

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        if isinstance(node.target, ast.Subscript):
            self.wrote(self.path(node.target.value))

    def visit_For(self, node):
        if isinstance(node.target, ast.Tuple) and isinstance(node.iter, ast.Tuple):
            for each in node.iter.elts:  # the same body over several columns
                for name, value in zip(node.target.elts, each.elts, strict=True):
                    self.names[name.id] = self.path(value)
                for statement in node.body:
                    self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Call(self, node):
        self.generic_visit(node)
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        for k, value in enumerate(node.args):
            if k in self.mutated.get(name, ()):
                self.wrote(self.path(value))
        if name == "copyto":
            self.wrote(self.path(node.args[0]))
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.wrote(self.path(keyword.value))


def writers():
    """Modules that write each column of the state, by (group, column)."""
    mutated = {}
    while True:
        found, grown = defaultdict(set), {}
        for name, (module, node) in functions().items():
            walk = Walk(node, mutated)
            places = {a.arg: k for k, a in enumerate(node.args.args)}
            grown[name] = {places[p] for p in walk.parameters if p in places}
            for path in walk.columns if module != "start" else ():  # before the run begins
                found[path].add(module)
        if grown == mutated:
            return found
        mutated = grown


def test_who_writes_a_column_is_named_where_it_is_declared():
    found = writers()
    declared = {
        (name, c): set(columns.World.declared[name].group.declared[c].by)
        for name in columns.World.declared
        for c in columns.World.declared[name].group.declared
    }
    assert {path: found.get(path, set()) for path in declared} == declared
    assert len(found) > 100
