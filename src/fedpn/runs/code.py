"""Code of the user's own, kept with its run, so that the models answer later and elsewhere."""

import hashlib
import shutil
from pathlib import Path

from fedpn.core import store
from fedpn.core.code import texts_of
from fedpn.core.errors import UserError
from fedpn.core.settings import Tree, named_code, told

Texts = dict[str, str]  # of files of the user's own, by their names


def own_code(tree: Tree) -> Texts:
    """The files that settings name (`file.py:Class`, `module:Class`), and what these import."""
    texts: Texts = {}
    for key, spec in named_code(tree).items():
        try:
            texts |= texts_of(spec)
        except (ImportError, ValueError, SyntaxError) as error:
            raise UserError(f"{key}: cannot import {told(spec)}: {error}") from None
    return texts


def versions(tree: Tree) -> dict[str, str]:
    """Which version of each file results depend on: of code, and of weights that are begun with."""
    texts = own_code(tree)
    found = {name: hashlib.sha256(texts[name].encode()).hexdigest()[:16] for name in sorted(texts)}
    weights = Path(tree["model"]["pretrained"])
    if weights.is_file():
        found[weights.name] = store.checksum(weights)[:16]
    return found


def keep_code(texts: Texts, out: Path) -> None:
    """Copies these files into the run, in the place of any that are there."""
    shutil.rmtree(out / store.CODE, ignore_errors=True)
    for name, text in texts.items():
        store.make_folder((out / store.CODE / name).parent)
        store.write_text(out / store.CODE / name, text)
