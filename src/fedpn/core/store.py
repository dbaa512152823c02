"""The run directory: safetensors, JSON and TOML, written atomically, checksummed."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedpn.core.errors import UserError
from fedpn.core.trees import Params

MANIFEST = "manifest.json"
LOCK = ".lock"
SEALED = {".safetensors", ".json", ".jsonl", ".toml", ".html"}


def claim(path: Path, resume: bool = False, hint: str = ", or add --resume to go on") -> None:
    """Makes a directory, or refuses one that holds something already."""
    for parent in (path, *path.parents):
        if parent.exists() and not parent.is_dir():
            raise UserError(f"--out {path}: {parent} is a file, not a directory")
    if resume:
        if not (path / "config.toml").exists():
            raise UserError(f"--resume: {path} holds no run (it has no config.toml)")
    elif path.exists() and any(path.iterdir()):
        raise UserError(f"--out {path} is not empty; choose another{hint}")
    make_folder(path)


@contextmanager
def claimed(path: Path, resume: bool = False) -> Iterator[None]:
    """Claims a directory, and holds it against other processes, where the system knows locks."""
    claim(path, resume)
    lock = path / LOCK
    with lock.open("a+") as file:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read(20).strip() or "another process"
                raise UserError(f"{path} is in use by process {holder}; wait for it") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def make_folder(path: Path, option: str = "--out") -> None:
    """Makes sure that a directory is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {path} cannot be made: {error.strerror}") from None


class Damaged(UserError):  # noqa: N818
    """A file is not what was written."""


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    _replace(path, lambda temporary: temporary.write_bytes(content))


def write_with(path: Path, write: Any) -> None:
    """Has a function write to a temporary name, which becomes the file once it is whole."""
    _replace(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_toml(path: Path, tree: dict[str, Any]) -> None:
    write_text(path, tomli_w.dumps(tree))


def write_tensors(path: Path, tensors: Params, **about: str) -> None:
    # Clones: clients may share tensors, and files may not.
    packed = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    _replace(path, lambda temporary: save_file(packed, temporary, about or None))


def append_text(path: Path, text: str) -> None:
    """Adds to the end of a file."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def sync(path: Path) -> None:
    """Makes sure that a file, or the names in a folder, outlive a loss of power, if possible."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        if isinstance(error, SafetensorError):
            raise UserError(f"{path} cannot be written: {error}") from None
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a finished run: {path.name} is missing") from None
    except (ValueError, OSError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise Damaged(f"{path} is damaged: {error}") from None


def read_tensors(path: Path, prefix: str = "") -> tuple[Params, dict[str, str]]:
    """Reads the tensors below a prefix, which is taken off, and what was said about the file."""
    with _opened(path) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
        return tensors, file.metadata() or {}


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors in a file."""
    with _opened(path) as file:
        return list(file.keys())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a finished run: {path.name} is missing") from None
    except (SafetensorError, OSError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def seal(directory: Path) -> None:
    """Writes the checksums of all files, so that damage is noticed."""
    files = sorted(p for p in directory.iterdir() if p.suffix in SEALED and p.name != MANIFEST)
    write_json(directory / MANIFEST, {p.name: _sha256(p) for p in files})


def verify(directory: Path, names: list[str]) -> None:
    """Compares files with the checksums of a sealed directory."""
    sums = read_json(directory / MANIFEST)
    for name in names:
        path = directory / name
        if not path.exists():
            raise UserError(f"{directory} is not a finished run: {name} is missing")
        if sums.get(name) != _sha256(path):
            raise Damaged(f"{path} is damaged or was changed: its checksum is not the run's")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
