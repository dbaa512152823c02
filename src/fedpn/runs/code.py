"""Code of the user's own, kept with its run, so that the models answer later and elsewhere."""

import importlib
import sys
from pathlib import Path

from fedpn.core import store
from fedpn.core.settings import Tree, named_code
from fedpn.core.source import TEXT


def keep_code(tree: Tree, out: Path) -> None:
    """Copies the files that settings name (`file.py:Class`, `module:Class`) into the run."""
    for spec in named_code(tree).values():
        module = spec.rpartition(":")[0]
        name = Path(module).stem if module.endswith(".py") else module
        found = sys.modules.get(name) or importlib.import_module(name)
        text, file = getattr(found, TEXT, None), getattr(found, "__file__", None)
        alone = "." not in name and name != "__main__"
        if file and alone and Path(file).suffix == ".py" and Path(file).stem != "__init__":
            text = store.read_text(Path(file))
        if text is not None:
            store.make_folder(out / store.CODE)
            store.write_text(out / store.CODE / f"{name}.py", text)
