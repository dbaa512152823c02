"""Modules that settings name: found, and the texts of their files as they were loaded."""

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from fedpn.core.errors import UserError

TEXT = "__text__"  # a module that was made here has its file's name and text under it
SEEN = "__seen__"  # what a file said when its module was first looked at, and the load that was
KEPT: ContextVar[Path | None] = ContextVar("kept", default=None)  # as `code_from` says
INSTALLED = {"site-packages", "dist-packages"}
STDLIB = Path(ast.__file__).parent


@contextmanager
def code_from(folder: Path | None) -> Iterator[None]:
    """Within it, code of the user's own is that of a folder, where it has a file of that name."""
    token = KEPT.set(folder)
    try:
        yield
    finally:
        KEPT.reset(token)


def find_module(spec: str) -> ModuleType:
    """Import the module of `file.py:name` or `module:name`, though another of its name may be
    loaded."""
    name = spec.rpartition(":")[0]
    root = Path.cwd()  # where people keep what they write
    if name.endswith(".py"):
        root, name = Path(name).resolve().parent, Path(name).stem
    if name.startswith("."):
        raise ImportError("a module's name does not begin with a dot")
    kept = KEPT.get()
    if kept is not None and _file(kept, name):
        root = kept.resolve()
    elif str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module = _load(name, root)
    _seen(module)
    return module


def _load(name: str, root: Path) -> ModuleType:
    file, there = _file(root, name), sys.modules.get(name)
    if file is None or (there and getattr(there, "__file__", None) == str(file)):
        return importlib.import_module(name)
    names = _names([path.relative_to(root) for path in _files(file, root)])
    for known in names:
        module = sys.modules.get(known)
        loaded = Path(getattr(module, "__file__", None) or "").resolve()
        # What is named takes the place of any module; its imports do not take the library's.
        if module and loaded != _file(root, known) and (known == name or _is_own(module, loaded)):
            del sys.modules[known]
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(str(root))
    for known in names:
        if known in sys.modules:
            _seen(sys.modules[known])
    return module


def texts_of(spec: str) -> dict[str, str]:
    """The text of the file that code is in, and those of the modules beside it that it imports.

    The key is a file's name below the folder from which modules are imported. What is installed is
    not the user's own; what was edited after it was loaded is refused, for it is not what runs.
    """
    module = find_module(spec)
    if TEXT in vars(module):
        return dict([vars(module)[TEXT]])
    file = getattr(module, "__file__", None)
    if file is None or not _is_own(module, Path(file)):
        return {}
    path = Path(file).resolve()
    root = path.parents[module.__name__.count(".") + (path.stem == "__init__")]
    files = _files(path, root)
    return {path.relative_to(root).as_posix(): _loaded_text(path, root) for path in files}


def _is_own(module: ModuleType, file: Path) -> bool:
    installed = INSTALLED & set(file.parts) or file.is_relative_to(STDLIB)
    return file.suffix == ".py" and not installed and module.__name__.split(".")[0] != "fedpn"


def _loaded_text(path: Path, root: Path) -> str:
    """What a file said when it was loaded; what it says, where it was not loaded yet."""
    (name,) = _names([path.relative_to(root)])
    module = sys.modules.get(name)
    loaded = getattr(module, "__file__", None)
    text = _read(path)
    if module is None or loaded is None or Path(loaded).resolve() != path:
        return text
    if _seen(module) != text:
        raise UserError(
            f"{path} was edited after it was loaded, and its old code would run: start Python "
            "anew, or reload it and all that imports it"
        )
    return text


def _seen(module: ModuleType) -> str | None:
    """The text of a module when it was first looked at after it was loaded."""
    load, text = vars(module).get(SEEN, (None, None))
    if load is None or load is not module.__spec__:
        file = getattr(module, "__file__", None) or ""
        text = _read(Path(file)) if file.endswith(".py") else None
        vars(module)[SEEN] = module.__spec__, text
    return None if text is None else str(text)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _file(root: Path, name: str) -> Path | None:
    """The file of a module below a folder."""
    place = root.joinpath(*name.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file.resolve() for file in files if file.is_file()), None)


def _names(files: list[Path]) -> list[str]:
    """
    >>> _names([Path("mine.py"), Path("pack/__init__.py"), Path("pack/part.py")])
    ['mine', 'pack', 'pack.part']
    """
    return [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]


def _files(file: Path, root: Path) -> list[Path]:
    """A file, and all that it imports from below the same folder, by whatever way."""
    found = [file]
    for path in found:  # grows
        imported = [below for name in _imports(path, root) if (below := _file(root, name))]
        found += [new for new in dict.fromkeys(imported) if new not in found]
    return found


def _imports(path: Path, root: Path) -> Iterator[str]:
    """The modules that a file names in its imports, each after the packages that it is in."""
    try:
        nodes = list(ast.walk(ast.parse(_read(path))))
    except (SyntaxError, ValueError):  # which whoever imports it is told
        return
    here = list(path.relative_to(root).parent.parts)
    for node in nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            stem = ".".join([*base, *filter(None, [node.module])])
            names = [".".join(filter(None, [stem, alias.name])) for alias in node.names]
        for parts in (name.split(".") for name in names):
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
