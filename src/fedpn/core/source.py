"""Code that was typed into a notebook: a name for it, and its text with all that it refers to.

So code of the user's own can be kept with a run as a file, though it never was in one.
"""

import ast
import builtins
import copy
import hashlib
import inspect
import linecache
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from fedpn.core.code import TEXT
from fedpn.core.errors import UserError

OWN = "own_"  # the name of a module that was made here begins with it
PLAIN = (int, float, str, bool, bytes, type(None))


def name_of_own(key: str, value: Any) -> str:
    """What settings call a class or function of the user's own, or a module that is made already.

    What can be imported goes by its name; the rest by that of a module that is made for it, whose
    text is kept with the run.
    """
    name: str = getattr(value, "__qualname__", "")
    made = not name
    if made and not hasattr(value, "state_dict"):
        raise UserError(f"{key} is a {type(value).__name__}, which no setting takes")
    if not made and "<" not in name and value.__module__ != "__main__":
        return f"{value.__module__}:{name}"
    short = type(value).__name__ if made else value.__name__
    module = ModuleType(OWN + short.strip("<>"))
    attribute = "encoder" if made else short
    setattr(module, attribute, _copies_of(value) if made else value)
    text = ("txt", _told(value)) if made else ("py", source_of(value))
    module.__dict__[TEXT] = f"{module.__name__}.{text[0]}", text[1]
    sys.modules[module.__name__] = module
    return f"{module.__name__}:{attribute}"


def _copies_of(made: Any) -> Callable[..., Any]:
    """A maker of copies, which takes what any maker of encoders takes."""
    return lambda shape, dim: copy.deepcopy(made)


def _told(made: Any) -> str:
    """What a module that is made already is, and a hash of its weights: it has no text."""
    digest = hashlib.sha256()
    for name, tensor in made.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().double().numpy().tobytes())
    return f"{made!r}\n{digest.hexdigest()}\n"


def source_of(thing: Callable[..., Any]) -> str:
    """The text of a module that makes the thing: imports, constants, what it calls, itself."""
    head: dict[str, str] = {}
    parts: dict[int, str] = {}
    _collect(thing, head, parts)
    text = _composed(head, parts)
    try:  # what is kept must be what can be opened
        exec(compile(text, thing.__name__, "exec"), {"__name__": OWN + thing.__name__})
    except Exception as error:
        raise UserError(
            f"{thing.__name__} cannot be kept with the run ({type(error).__name__}: {error}): put "
            "it into a file"
        ) from None
    return text


def _composed(head: dict[str, str], parts: dict[int, str]) -> str:
    imports = sorted(line for line in head.values() if line.startswith(("import", "from")))
    constants = [line for line in head.values() if not line.startswith(("import", "from"))]
    return "\n".join([*imports, "", *constants, "", "", "\n\n".join(parts.values())])


def _collect(thing: Any, head: dict[str, str], parts: dict[int, str]) -> None:
    text = _text(thing)
    known = _around(thing)
    for name in _names(text):
        if name in head or name not in known or known[name] is thing:
            continue
        value = known[name]
        if getattr(builtins, name, None) is value:
            continue
        line = _import(name, value, thing)
        if line:
            head[name] = line
        elif _is_plain(value):
            head[name] = f"{name} = {_written(value)}"
        elif not isinstance(value, type | FunctionType):
            raise UserError(
                f"{thing.__name__} refers to {name!r}, a {type(value).__name__} that cannot be "
                "written down: make it inside, or put the code into a file"
            )
        elif id(value) not in parts:
            parts[id(value)] = ""  # it may refer to what refers to it
            _collect(value, head, parts)
    parts.pop(id(thing), None)  # after all that it needs
    parts[id(thing)] = text


def _import(name: str, value: Any, thing: Any) -> str:
    """The line that imports a value; "" for what has no home but the notebook."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, type | FunctionType):
        home, known = value.__module__, value.__name__
        alone = home in ("__main__", thing.__module__) or "<" in value.__qualname__
        return "" if alone else f"from {home} import {known} as {name}"
    homes = [m for m in list(sys.modules.values()) if getattr(m, "__dict__", {}).get(name) is value]
    away = [m.__name__ for m in homes if m.__name__ not in ("__main__", thing.__module__)]
    return "" if _is_plain(value) or not away else f"from {away[0]} import {name}"


def _written(value: Any) -> str:
    """A plain value as Python reads it back.

    >>> _written((1, float("inf"), "a"))
    "(1, float('inf'), 'a',)"
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, tuple):
        return f"({''.join(f'{_written(inner)}, ' for inner in value).rstrip(' ')})"
    return f"float({str(value)!r})" if isinstance(value, float) else repr(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _functions(thing: Any) -> Iterator[FunctionType]:
    """A function, or the functions of a class that were written by somebody."""
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    for member in members:
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(function, FunctionType) and not function.__code__.co_filename.startswith("<"):
            yield function


def _around(thing: Any) -> Mapping[str, Any]:
    """What names mean where a thing was made."""
    found = dict(vars(sys.modules.get(thing.__module__, builtins)))
    found |= {base.__name__: base for base in getattr(thing, "__bases__", ())}
    for function in _functions(thing):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        inside = {name: cell.cell_contents for name, cell in cells if name != "__class__"}
        found |= {**function.__globals__, **inside}
    return found


def _text(thing: Any) -> str:
    """The text of a thing as it was typed, with its decorators."""
    code = next((f.__code__ for f in _functions(thing)), None)
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    # A class of fields alone does not tell where it was typed: the newest of its name is meant.
    places = [code.co_filename] if code else [file] if file else [*linecache.cache][::-1]
    for lines in map(linecache.getlines, places):
        for node in _definitions("".join(lines), thing.__name__):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            last = node.end_lineno or first
            if code is None or first <= code.co_firstlineno <= last:
                return textwrap.dedent("".join(lines[first - 1 : last]))
    raise UserError(
        f"the text of {thing.__name__} is not to be had, so that it cannot be kept with the run: "
        "put it into a file"
    )


def _definitions(text: str, name: str) -> list[ast.ClassDef | ast.FunctionDef]:
    """The classes and functions of a name in a text; none where it is no Python."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [node for node in nodes if isinstance(node, kinds) and node.name == name]


def _names(text: str) -> list[str]:
    """The names that a text takes from around it, in their order."""
    found: dict[str, None] = {}
    tables = [symtable.symtable(text, "text", "exec")]
    for table in tables:  # grows by those inside
        tables += table.get_children()
        for symbol in table.get_symbols():
            outside = symbol.is_global() or (
                table.get_type() == "module" and symbol.is_referenced()
            )
            if symbol.is_referenced() and outside:
                found[symbol.get_name()] = None
    return list(found)
