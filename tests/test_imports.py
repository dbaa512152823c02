"""The import rule of the architecture, on the syntax tree: a module imports only from below."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedpn

ROOT = Path(fedpn.__file__).parent
# Highest first; rooms in one row stand side by side and never import each other.
ROWS = [
    {"cli"},
    {"flower"},
    {"runs"},
    {"reporting"},
    {"serving"},
    {"federated"},
    {"algorithms", "routing", "nn", "data"},
    {"core"},
]
HEIGHT = {name: len(ROWS) - i for i, row in enumerate(ROWS) for name in row}
ONLY_IN = {
    "flwr": {"flower"},
    "fastapi": {"service"},
    "matplotlib": {"reporting"},
    "mlflow": {"runs"},
    "tensorboard": {"runs"},
    "dp_accounting": {"federated"},
}


def _imports(path):
    """Yields every imported module, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ["fedpn", *path.relative_to(ROOT).parts[:-1]]
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (f"{module}.{a.name}" for a in node.names) if module == "fedpn" else [module]


FILES = [p for p in ROOT.rglob("*.py") if p.name != "__init__.py" or p.parent != ROOT]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_from_below(path):
    unit = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert unit in HEIGHT, f"{unit} has no row in the architecture"
    for module in _imports(path):
        top, *rest = module.split(".")
        assert unit in ONLY_IN.get(top, {unit}), f"{unit} must not import {module}"
        if top == "fedpn" and rest and rest[0] in HEIGHT and rest[0] != unit:
            assert HEIGHT[rest[0]] < HEIGHT[unit], f"{unit} must not import {module}"


def test_importing_fedpn_is_light():
    code = "import sys, fedpn; print([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
