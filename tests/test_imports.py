"""The import rule of the architecture, on the syntax tree: a module imports only from below.

Between rooms and inside them; `rooms.py` has the table.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedpn
import fedpn_paper
from rooms import HEIGHT, INSIDE, ROOMS, WITHIN

ROOTS = {"fedpn": Path(fedpn.__file__).parent, "fedpn_paper": Path(fedpn_paper.__file__).parent}
ONLY_IN = {
    "flwr": {"flower"},
    "fastapi": {"service"},
    "matplotlib": {"reporting", "fedpn_paper"},
    "jinja2": {"reporting", "fedpn_paper"},
    "mlflow": {"runs"},
    "tensorboardX": {"runs"},
}
MOST_ENTRIES, MOST_LINES = 24, 500


def _imports(path):
    """Yields every imported module, and every name imported from one, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _place(package, parts):
    """A module's room, and its unit within it."""
    if package == "fedpn_paper":
        return "fedpn_paper", None
    room = parts[0].removesuffix(".py")
    return room, parts[1].removesuffix(".py") if len(parts) > 1 else None


ENTRANCES = [("fedpn", "__init__.py"), ("fedpn", "__main__.py")]
FILES = [
    (package, path)
    for package, root in ROOTS.items()
    for path in sorted(root.rglob("*.py"))
    if (package, path.relative_to(root).as_posix()) not in ENTRANCES
]


@pytest.mark.parametrize(
    ("package", "path"), FILES, ids=[str(path.relative_to(ROOTS[p].parent)) for p, path in FILES]
)
def test_a_module_imports_only_from_below(package, path):
    room, unit = _place(package, path.relative_to(ROOTS[package]).parts)
    assert room in HEIGHT, f"{room} has no row in the architecture"
    for module in _imports(path):
        top, *rest = module.split(".")
        assert room in ONLY_IN.get(top, {room}), f"{room} must not import {module}"
        if top == "fedpn_paper":
            assert room == "fedpn_paper", f"{room} must not import {module}"
        if top != "fedpn" or not rest or rest[0] not in HEIGHT:
            continue
        if rest[0] != room:
            assert HEIGHT[rest[0]] < HEIGHT[room], f"{room} must not import {module}"
        elif len(rest) > 1 and unit not in ("__init__", rest[1]) and rest[1] in WITHIN[room]:
            assert unit in WITHIN[room], f"{room}/{unit} has no row in the architecture"
            mine, theirs = WITHIN[room][unit], WITHIN[room][rest[1]]
            assert theirs < mine, f"{room}/{unit} must not import {module}"


def test_every_module_has_a_row():
    for path in ROOTS["fedpn"].rglob("*.py"):
        room, unit = _place("fedpn", path.relative_to(ROOTS["fedpn"]).parts)
        if not room.startswith("__") and unit != "__init__":
            assert unit in WITHIN[room], f"{room}/{unit} has no row in the architecture"


def test_the_house_stays_small():
    entries = [p.name for p in ROOTS["fedpn"].iterdir() if p.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)
    for _, path in FILES:
        assert len(path.read_text().splitlines()) <= MOST_LINES, path


def test_the_page_shows_this_table():
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    assert ROOMS.strip() in page
    for room, text in INSIDE.items():
        rows = [
            " · ".join(n.strip() for n in row.split("·") if n.strip()) for row in text.split("/")
        ]
        for row in rows:
            assert row in page, f"docs/architecture.md lacks {room}: {row}"


def test_importing_fedpn_is_light():
    code = "import sys, fedpn; print([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
