"""Who a run is: what it must agree with to go on, in its directory and in every checkpoint."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import Tree, leaves
from fedpn.federated.checkpoint import differences
from fedpn.runs.code import Texts, keep_code, own_code, versions
from fedpn.runs.config import Config, to_tree

SIMULATED = "the simulator"


@dataclass(frozen=True)
class Identity:
    """What makes a run this run: its kind, its data, settings that change results, and code."""

    kind: str  # the engine, or the command that made it
    settings: Tree  # as flat keys, the seed among them
    texts: Texts  # of files of the user's own
    files: dict[str, str]  # which version of each file it is, and of weights
    data: str = ""  # a fingerprint; "" where nodes keep theirs

    @property
    def tree(self) -> Tree:
        """The same as JSON has it, and a hash of it all."""
        tree: Tree = {"engine": self.kind, "data": self.data}
        tree |= {"code": self.files, "settings": self.settings}
        return tree | {"identity": hashlib.sha256(_text(tree).encode()).hexdigest()}

    @property
    def facts(self) -> dict[str, str]:
        """The same as texts, as checkpoints have it."""
        return _facts(self.tree)

    def keep(self, out: Path) -> None:
        """Writes it into the directory of a run that begins, beside the code that it names."""
        keep_code(self.texts, out)
        store.write_json(out / store.IDENTITY, self.tree)

    def check(self, out: Path) -> None:
        """Refuses to go on with a directory that is another run's, or was changed by hand."""
        file = out / store.IDENTITY
        if not file.exists():
            raise UserError(
                f"--resume: {out} does not say who it is ({store.IDENTITY} is missing): finish the "
                "run with the fedpn that began it, or begin anew with another --out"
            )
        if (out / store.MANIFEST).exists():
            store.verify(out, [store.IDENTITY, *store.code_of(out)])
        try:
            odd = differences(_facts(store.read_json(file)), self.facts)
        except (AttributeError, TypeError, ValueError):
            raise store.Damaged(f"{file} is damaged: it does not say who the run is") from None
        if odd:
            raise UserError(
                f"--resume: {out} was begun otherwise: {odd} (what it was is in {store.IDENTITY}, "
                f"its code in {store.CODE}); put that back, or begin anew with another --out"
            )


def identity_of(config: Config, data: str = "", kind: str = SIMULATED) -> Identity:
    """The identity of a run with these settings; engine and rounds may be others as it goes on."""
    tree = to_tree(config)
    flat = {k: v for k, v in leaves(tree) if k != "rounds" and not k.startswith("engine.")}
    return Identity(kind, flat, own_code(tree), versions(tree), data)


def refuse_other_code(config: Config, base: Path) -> None:
    """Refuses to go on from a finished run with another version of its code."""
    if not (base / store.IDENTITY).exists():  # of an older fedpn
        return
    store.verify(base, [store.IDENTITY])
    before, now = store.read_json(base / store.IDENTITY), identity_of(config).tree
    if odd := differences({"code": _text(before["code"])}, {"code": _text(now["code"])}):
        raise UserError(f"{base} was made with other code: {odd}")


def _facts(tree: Tree) -> dict[str, str]:
    return {k: value if isinstance(value, str) else _text(value) for k, value in tree.items()}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
