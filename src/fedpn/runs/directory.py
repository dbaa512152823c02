"""A run's directory: what is in it, and how a run goes on with one or replaces it."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import leaves, named_code, need_trust, read_toml
from fedpn.federated.checkpoint import BEFORE, HISTORY, STATE, rounds_done
from fedpn.runs.config import Config, resolve, to_tree
from fedpn.serving.bundle import FILES

SERVER = "server.safetensors"  # what the server had in the end: clients may join by it, or leave
WRITTEN = (
    *FILES,
    *("config.toml", STATE, BEFORE, HISTORY, "memories.bin", SERVER, "metrics.json"),
    *("figures.json", "gallery.safetensors", "report.html", "timings.json", "engine.json"),
    *("tensorboard", store.PASSING, store.CODE, store.IDENTITY, store.MANIFEST, store.LOCK),
)


def stored(out: Path) -> dict[str, Any]:
    """The settings of the run in a directory."""
    if not (out / "config.toml").exists():
        raise UserError(f"{out} holds no run (it has no config.toml)")
    return read_toml(out / "config.toml")


def clear(out: Path) -> None:
    """Takes the run in a directory away, so that another can take its place."""
    store.clear(out, WRITTEN)


def refuse_changes(config: Config, out: Path, but: Collection[str] = ()) -> None:
    """A run goes on as it began; but it may have more rounds or fewer, and another engine.

    Settings in `but` may be others as well. Code that the directory alone names is not run.
    """
    kept, new = stored(out), to_tree(config)
    need_trust(kept, f"--resume: {out}", False, list(named_code(new).values()))
    old = to_tree(resolve([kept]))
    flat_old, flat_new = dict(leaves(old)), dict(leaves(new))
    done = rounds_done(out)
    if config.rounds < min(done, old["rounds"]):
        raise UserError(f"--resume: {done} rounds are done; --rounds {done} ends the run there")
    for key in flat_old | flat_new:
        before, after = flat_old.get(key), flat_new.get(key)
        free = key == "rounds" or key in but or key.startswith("engine.")
        if before != after and not free:
            raise UserError(
                f"--resume: {key} was {before!r} and is now {after!r}; only rounds may change"
            )
