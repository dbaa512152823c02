"""The run directory: safetensors, JSON and TOML, written atomically, checksummed."""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w
from safetensors import SafetensorError
from safetensors.torch import save_file

from fedpn.core import tensors
from fedpn.core.errors import UserError
from fedpn.core.trees import Params

MANIFEST, LOCK = "manifest.json", ".lock"
PASSING = "status.json"  # how a run stands: replaced as it goes, and no part of what it came to
CODE = "code"  # a folder below: files of the user's own that models need
IDENTITY = "identity.json"  # who a run is, from its beginning on
BEGUN = {LOCK, IDENTITY, CODE, "config.toml", "history.jsonl", "memories.bin", PASSING}
LONGEST = 300  # characters of a library's words
SEALED, UNSEALED = {".safetensors", ".json", ".jsonl", ".toml", ".html"}, {MANIFEST, PASSING}


def claim(path: Path, resume: bool = False) -> None:
    """Makes a run's directory, or refuses one that holds something already."""
    _refuse_file(path)
    if resume:
        if not (path / "config.toml").exists():
            raise UserError(f"--resume: {path} holds no run (it has no config.toml)")
    elif path.exists() and not _left_behind(path):
        raise UserError(f"--out {path} is not empty; choose another, or --resume, or --overwrite")
    make_folder(path)


def _refuse_file(path: Path) -> None:
    for parent in (path, *path.parents):
        if parent.exists() and not parent.is_dir():
            raise UserError(f"--out {path}: {parent} is a file, not a directory")


def clear(path: Path, known: Collection[str]) -> None:
    """Takes the run in a directory away; nothing is, if it holds what no run has written."""
    if not path.is_dir() or _empty(path):
        return
    if not (path / LOCK).exists():
        raise UserError(f"--overwrite: {path} holds no run, so that nothing in it is replaced")
    strange = sorted(p.name for p in path.iterdir() if p.name not in known and not _is_draft(p))
    if strange:
        raise UserError(
            f"--overwrite: {path} holds {strange[0]}, which no run has written; take it away first"
        )
    with claimed(path, resume=(path / "config.toml").exists()):  # nobody is at work there
        for entry in path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != LOCK:
                entry.unlink()


def _empty(path: Path) -> bool:
    return not any(path.iterdir())


def _left_behind(path: Path) -> bool:
    """Whether a directory has no more than a run leaves that ended before its first checkpoint.

    Settings that somebody wrote there by hand have no lock beside them.
    """
    names = {p.name for p in path.iterdir() if not _is_draft(p)}
    return not names or LOCK in names <= BEGUN


def _is_draft(path: Path) -> bool:
    """Whether a file was being written, by its name.

    >>> _is_draft(Path("run/.state.safetensors.4711")), _is_draft(Path("run/.lock"))
    (True, False)
    """
    return path.name.startswith(".") and path.suffix.removeprefix(".").isdigit()


@contextmanager
def claimed(path: Path, resume: bool = False) -> Iterator[None]:
    """Claims a directory for a run, and holds it."""
    claim(path, resume)
    with held(path):
        yield


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds a directory against other processes, where the system knows locks."""
    with (path / LOCK).open("a+") as file:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                number = file.read(20).strip()
                holder = f"process {number}" if number else "another process"
                raise UserError(f"{path} is in use by {holder}; wait for it") from None
        for left in filter(_is_draft, path.iterdir()):  # by one who was killed
            left.unlink(missing_ok=True)
        with suppress(OSError):  # on a full disk the lock holds all the same
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A new folder under another name, which becomes `path` once it is whole."""
    _refuse_file(path)
    if path.exists() and not _empty(path):
        raise UserError(f"--out {path} is not empty; choose another")
    path = path.resolve()  # a link stays one
    for left in path.parent.glob(f".{path.name}.*/{LOCK}"):  # by one who was killed, perhaps
        with suppress(UserError), held(left.parent):
            shutil.rmtree(left.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    make_folder(draft)
    try:
        yield draft
        draft.replace(path)
        sync(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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
    _replace(path, lambda draft: draft.write_bytes(content))


def write_with(path: Path, write: Any) -> None:
    """Has a function write to a temporary name, which becomes the file once it is whole."""
    _replace(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_toml(path: Path, tree: dict[str, Any]) -> None:
    write_text(path, tomli_w.dumps(tree))


def write_tensors(path: Path, params: Params, **about: str) -> None:
    # Clones: clients may share tensors, and files may not.
    packed = {name: t.detach().cpu().clone().contiguous() for name, t in params.items()}
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
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path) -> Any:
    """Reads what a file holds."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise Damaged(f"{path} is damaged: {error}") from None


def read_tensors(path: Path, prefix: str = "") -> tuple[Params, dict[str, str]]:
    """Reads the tensors below a prefix, which is taken off, and what was said about the file."""
    with _taught(path):
        found, about = tensors.read_part(path, prefix)
        return {name.removeprefix(prefix): tensor for name, tensor in found.items()}, about


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors in a file."""
    with _taught(path):
        return tensors.names_of(path)


@contextmanager
def _taught(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a finished run: {path.name} is missing") from None
    except Exception as error:  # readers of damaged files fail in many ways, and at length
        told = (str(error).splitlines() or [type(error).__name__])[0]
        raise Damaged(f"{path} is damaged: {told[:LONGEST]}") from None


def seal(directory: Path) -> None:
    """Writes the checksums of all files, so that damage is noticed."""
    files = sorted(p for p in directory.iterdir() if p.suffix in SEALED and p.name not in UNSEALED)
    names = [*(p.name for p in files), *code_of(directory)]
    write_json(directory / MANIFEST, {name: checksum(directory / name) for name in names})


def code_of(directory: Path) -> list[str]:
    """The files of the user's own that a directory holds."""
    return sorted(p.relative_to(directory).as_posix() for p in (directory / CODE).rglob("*.py"))


def verify(directory: Path, names: list[str]) -> None:
    """Compares files with the checksums of a sealed directory."""
    sums = read_json(directory / MANIFEST)
    if not isinstance(sums, dict):
        raise Damaged(f"{directory / MANIFEST} is damaged: it holds no checksums")
    for name in names:
        path = directory / name
        if not path.exists():
            raise UserError(f"{directory} is not a finished run: {name} is missing")
        if sums.get(name) != checksum(path):
            raise Damaged(f"{path} is damaged or was changed: its checksum is not the run's")


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
