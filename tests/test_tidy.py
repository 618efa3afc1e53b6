"""The style of this project, as far as a machine can check it.

Every message says what to do instead. What needs judgement - whether a comment is a reason, whether
a name is right - is left to people.
"""

import ast
import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import settings_page

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"

PURE = {"core", "records", "storage"}
BANNED_WHEN_PURE = {
    "asyncio": "return an effect and let a runner await it",
    "logging": "return an effect and let a runner log it",
    "random": "take a random.Random as an argument",
    "socket": "return an effect",
    "time": "take now_ms as an argument",
}
# `os` and `shutil` are how a real Disk works; everything else goes through the port.
FILE_MODULES = {"os", "shutil", "tempfile", "mmap", "fcntl"}
OWNERS_OF_FILES = {"storage/disk.py": FILE_MODULES}

NOT_A_MODULE_NAME = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
NOT_A_CLASS_NAME = re.compile(r"(Manager|Helper|Utils?|Impl)$|^(Abstract|Base)[A-Z]")
# Written in two halves so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
LINES_WORTH_A_LOOK = 600
LINES_MAX = 900

PYTHON_FILES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "scripts", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
)
TEXT_FILES = [
    *PYTHON_FILES,
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
    ROOT / "Makefile",
    ROOT / "pyproject.toml",
]
GUIDES = [path for path in TEXT_FILES if path.suffix == ".md" and path.name != "CHANGELOG.md"]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PYTHON_FILES, ids=_name)
def test_module_is_tidy(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    problems = [*_module_problems(path, text, tree)]
    for node in ast.walk(tree):
        problems += _class_problems(node)
        if path.is_relative_to(SOURCE):
            problems += _import_problems(node, path.relative_to(SOURCE))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("path", TEXT_FILES, ids=_name)
def test_nothing_is_left_unfinished(path: Path) -> None:
    found = UNFINISHED.findall(path.read_text(encoding="utf-8"))
    assert not found, f"{found}: open an issue, or do it"


@pytest.mark.parametrize("path", GUIDES, ids=_name)
def test_a_guide_names_only_what_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    mentioned = set(re.findall(r"`(?:\$ )?make ([a-z-]+)", text))
    mentioned |= set(re.findall(r"^\$ make ([a-z-]+)", text, re.MULTILINE))
    assert mentioned <= targets, f"no such make target: {sorted(mentioned - targets)}"
    missing = [link for link in _local_links(text) if not (path.parent / link).exists()]
    assert not missing, f"links that lead nowhere: {missing}"


@pytest.mark.filterwarnings("default")
def test_long_modules_are_pointed_out() -> None:
    for path in PYTHON_FILES:
        line_count = path.read_text(encoding="utf-8").count("\n")
        if line_count > LINES_WORTH_A_LOOK:
            warnings.warn(f"{_name(path)} has {line_count} lines: two things in one?", stacklevel=1)


def test_the_page_of_settings_is_up_to_date() -> None:
    written = settings_page.PAGE.read_text(encoding="utf-8")
    assert written == settings_page.page(), "`make settings` writes docs/settings.md anew"


def test_every_decision_is_in_the_list_of_decisions() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in folder.glob("0*.md") if f"({path.name})" not in listed]
    assert not missing, f"add {missing} to docs/decisions/README.md"


def test_a_package_outside_the_cluster_is_kept_outside_by_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    outside = contracts["contracts"][-1]["source_modules"]
    for package in ("console", "lab", "pipeline"):
        if (SOURCE / package).is_dir():
            assert f"tidelog.{package}" in outside, f"add tidelog.{package} to the last contract"


def _module_problems(path: Path, text: str, tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield "no module docstring: say what the module is for"
    if path.stem in NOT_A_MODULE_NAME:
        yield f"{path.stem} is not a name: find the home of each function in it"
    if text.count("\n") > LINES_MAX:
        yield f"more than {LINES_MAX} lines: there is a second responsibility, give it a name"


def _class_problems(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef) and NOT_A_CLASS_NAME.search(node.name.lstrip("_")):
        yield f"line {node.lineno}: {node.name} carries no role: say what it is or does"


def _import_problems(node: ast.AST, path: Path) -> Iterator[str]:
    for module in _imported(node):
        if path.parts[0] in PURE and module in BANNED_WHEN_PURE:
            yield f"imports {module}: {BANNED_WHEN_PURE[module]}"
        if path.parts[0] in PURE and module in FILE_MODULES - OWNERS_OF_FILES.get(str(path), set()):
            yield f"imports {module}: go through the Disk port"
        if path.parts[0] == "wire" and module == "asyncio":
            yield "imports asyncio: a codec has no socket"


def _imported(node: ast.AST) -> list[str]:
    """Modules that are imported, less `Random`, the type of an argument that brings chance."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        if node.module == "random" and [alias.name for alias in node.names] == ["Random"]:
            return []
        return [node.module.partition(".")[0]]
    return []


def _local_links(text: str) -> list[str]:
    """Targets of Markdown links within the tree, less their anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
