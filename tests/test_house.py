"""The rules of the house, each kept by a machine: lengths, words, boundaries, documents."""

import ast
import gc
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

from twin.ui.pages import PAGES

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "scenario",
    "facts.py",
    "kernels/rng.py",
    "hardware",
    "model",
    "workload",
    "experts",
    "policies",
    "engine",
    "metrics",
)
FUNCTION_LINES = 70
FILE_LINES = 500
SMALL_LINES, MOST_SMALL = 40, 7  # the number goes down only
MOST_INSIDE = 23  # goes down only
SLEEP_S = 0.5  # in a test, at most
# What numpy and BLAS answer differently, in the last bit, by the instructions a processor has.
# Sums and what is done value by value with + - * / and square roots are alike on all.
BY_PROCESSOR = re.compile(
    r"np\.(exp2?|expm1|log(2|10|1p|addexp)?|(float_)?power|sin|cos|tan|a?r?c?(sin|cos|tan)h?|cbrt|"
    r"geomspace|logspace|dot|vdot|inner|matmul|tensordot|einsum|convolve|correlate|linalg|"
    r"argpartition)\b"
)


@cache
def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def sources(*rooms: str) -> list[Path]:
    """The twin's Python files, all or those of some rooms."""
    every = [p for p in tracked() if p.suffix == ".py" and "tests" not in p.relative_to(ROOT).parts]
    if not rooms:
        return every
    wanted = [ROOT / "twin" / room for room in rooms]
    return [p for p in every if any(p == w or w in p.parents for w in wanted)]


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file; they stay, so no later search for garbage looks at them."""
    gc.disable()
    found = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    gc.freeze()
    gc.enable()
    return found


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_functions_fit_a_screen():
    long = [
        f"{where(path, node.lineno)} {node.name}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not long


def test_files_fit_a_sitting():
    long = [
        str(path.relative_to(ROOT))
        for path in sources()
        if len(path.read_text("utf-8").splitlines()) > FILE_LINES
    ]
    assert not long


def test_small_files_get_fewer():
    """A file is as long as its one subject: splitting for a counter made files of a few lines."""
    small = [
        str(path.relative_to(ROOT))
        for path in sources()
        if ROOT / "twin" in path.parents
        and not path.name.startswith("__init__")
        and "migrations" not in path.parts
        and len(path.read_text("utf-8").splitlines()) < SMALL_LINES
    ]
    assert len(small) <= MOST_SMALL, small


def test_imports_inside_functions_get_fewer():
    """One stands there for a heavy library, or where its module may be absent."""
    inside = [
        where(path, node.lineno)
        for path in sources()
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert len(set(inside)) <= MOST_INSIDE, len(set(inside))


def test_no_modules_import_each_other_in_a_circle():
    graph = grimp.build_graph("twin", exclude_type_checking_imports=True)
    above: dict[str, set[str]] = {
        m: graph.find_modules_directly_imported_by(m) for m in graph.modules
    }
    while bottom := [m for m, below in above.items() if not below & above.keys()]:
        for module in bottom:
            del above[module]
    assert not above


def test_no_name_borrows_a_word_of_another_machine():
    banned = {"gpu", "gpus", "card", "cards", "device", "devices", "worker", "workers"}
    found = [
        f"{where(path, node.lineno)} {name}"
        for path in sources(*CORE)
        for node in nodes(path)
        for name in names_made_by(node)
        if banned & set(name.lower().split("_"))
    ]
    assert not found


def names_made_by(node: ast.AST) -> Iterator[str]:
    """Names a node gives to something: function, class, argument, variable."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def test_no_path_or_address_of_one_machine_is_written_down():
    pattern = re.compile(
        r"/(work|farm)/|/root/|/home/\w|/Users/\w|index-url|trusted-host|registry *= *http"
    )
    found = []
    for path in tracked():
        if path == Path(__file__).resolve() or path.suffix in {".png", ".parquet", ".gz", ".zip"}:
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(where(path, number))
    assert not found


def test_nothing_unsafe_is_called():
    unsafe = {"eval", "exec", "pickle", "marshal", "shelve", "unsafe_allow_html", "unsafe_load"}
    found = []
    for path in sources():
        for node in nodes(path):
            named = {
                ast.Call: lambda n: getattr(n.func, "id", ""),
                ast.Import: lambda n: n.names[0].name,
                ast.ImportFrom: lambda n: n.module or "",
                ast.keyword: lambda n: n.arg or "",
            }.get(type(node))
            if named and named(node) in unsafe:
                found.append(f"{path.relative_to(ROOT)} {named(node)}")
            if isinstance(node, ast.keyword) and node.arg == "shell":
                found.append(f"{path.relative_to(ROOT)} shell=")
    assert not found


def test_no_failure_is_swallowed():
    silent = [
        where(path, node.lineno)
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or all(isinstance(s, ast.Pass) for s in node.body))
    ]
    assert not silent


def test_the_core_opens_no_file_reads_no_clock_draws_no_unseeded_number():
    shell = {"time", "random", "secrets", "os", "pathlib", "io", "socket", "subprocess", "uuid"}
    found = []
    for path in sources(*CORE):
        for node in nodes(path):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open":
                modules = ["io"]
            elif isinstance(node, ast.Attribute) and node.attr in {"default_rng", "RandomState"}:
                modules = ["random"]
            found += [where(path, node.lineno) for m in modules if m.split(".")[0] in shell]
    assert not found


def test_the_core_computes_the_same_on_every_processor():
    found = []
    for path in sources(*CORE, "steady.py"):
        for node in nodes(path):
            text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Call) else ""
            ties = re.match(r"np\.argsort\(|.*\.argsort\(", text) and "kind=" not in text
            product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
            if product or ties or (isinstance(node, ast.Attribute) and BY_PROCESSOR.match(text)):
                found.append(f"{where(path, node.lineno)}: {ast.unparse(node)}")
    assert not found  # take twin.kernels.rng.apply, a sum of products, a stable order


def test_requirements_are_exact_and_imported():
    text = (ROOT / "requirements.txt").read_text("utf-8")
    own, _, others = text.partition("# What those need")
    pins = re.findall(r"^([\w.-]+)==[\w.]+$", own, re.MULTILINE)
    imported = set()
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.Import):
                imported |= {a.name.split(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").split(".")[0])
    outside = imported - set(sys.stdlib_module_names) - {"twin", "__future__"}
    assert {p.lower() for p in pins} == {name.lower() for name in outside}
    lines = [x for x in own.splitlines() + others.splitlines()[1:] if x and x[0] != "#"]
    assert all("==" in line for line in lines)


def test_what_is_installed_is_what_is_pinned_with_hashes():
    """`make lock` writes the lock files anew after a change of a pin."""

    def pins(*files: str) -> set[str]:
        text = "".join((ROOT / name).read_text("utf-8") for name in files)
        found = re.findall(r"^([\w.-]+)(?:\[\w+\])?(==[^\s;]+)", text, re.MULTILINE)
        return {re.sub(r"[-_.]+", "-", name).lower() + version for name, version in found}

    for lock, files in {
        "requirements.lock": ("requirements.txt",),
        "requirements-dev.lock": ("requirements.txt", "requirements-dev.txt"),
    }.items():
        entries = (ROOT / lock).read_text("utf-8").split("\n    --hash")
        assert pins(*files) <= pins(lock), f"make lock: {lock} is older than its pins"
        assert len(entries) > len(pins(lock))
        assert "index-url" not in "".join(entries)


def test_only_the_registry_of_pages_knows_where_a_page_is():
    """An address, a title and a script stand in one place; all links go by a page's name."""
    pattern = re.compile(r"ui/pages|\bst\.page_link\(")
    known = [str(p.relative_to(ROOT)) for p in sources() if pattern.search(p.read_text("utf-8"))]
    assert known == ["twin/ui/link.py"]
    folders = {path.parent.name for path in (ROOT / "twin/ui/pages").glob("*/__init__.py")}
    assert folders == {name for name, page in PAGES.items() if page.code.startswith("twin.ui.")}
    assert all((ROOT / page.script).exists() for page in PAGES.values())


def test_pages_are_left_in_one_way():
    """Streamlit refuses to leave a page whose address remembers a choice, unless told where to."""
    ways = [where(path, 1) for path in sources() if "switch_page(" in path.read_text("utf-8")]
    assert [way.partition(":")[0] for way in ways] == ["twin/ui/link.py"]


def test_the_public_names_are_where_the_package_says():
    said = " ".join((ast.get_docstring(ast.parse((ROOT / "twin/__init__.py").read_text()))).split())
    public = said.partition("The public names are ")[2]
    pairs = re.findall(r"((?:`\w+`(?:,| and)? ?)+)of `([\w.]+)`", public)
    assert pairs
    for names, module in pairs:
        found = importlib.import_module(module)
        assert all(hasattr(found, name) for name in re.findall(r"\w+", names.replace("and", "")))


def test_every_make_target_of_the_readme_exists():
    text = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"`?make (\w+)", text))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"serve", "test", "docs"} <= named <= targets


def test_no_test_depends_on_wall_time():
    """A busy machine is no failure: hypothesis is asked through `draws`, and nobody sleeps long."""
    found = []
    for path in [p for p in tracked() if re.fullmatch(r"test_\w+\.py|conftest\.py", p.name)]:
        if re.search(r"\bsettings\(|import .*\bsettings\b", path.read_text("utf-8")):
            found.append(f"{where(path, 1)} hypothesis with a deadline")
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "sleep":
                seconds = node.args[0]
                if isinstance(seconds, ast.Constant) and seconds.value > SLEEP_S:
                    found.append(where(path, node.lineno))
            if isinstance(node, ast.Attribute) and node.attr == "wait_for_function":
                found.append(f"{where(path, node.lineno)} stops at the pages' policy: use `until`")
    assert not found


def test_set_up_says_what_it_does_and_how_long():
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()
    (pip,) = [line for line in lines if line.startswith("PIP =")]
    assert "-qq" in pip and "--disable-pip-version-check" in pip
    installs = [i for i, line in enumerate(lines) if "--require-hashes" in line]
    assert len(installs) == 2
    for i in installs:
        assert re.search(r"echo .*(minute)", lines[i - 1]) and "$(PIP)" in lines[i]
