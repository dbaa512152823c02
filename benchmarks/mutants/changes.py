"""Small mistakes in Python: which ones there could be in a module, and the module with one.

Comparisons, arithmetic, numbers by one, negations, what is returned, statements left out, names
that are easily confused. Texts and types stay as they are.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

SWAPS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitXor: (ast.BitOr,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
PAIRS = [("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("any", "all"), ("ceil", "floor")]
PAIRS += [("zeros", "ones"), ("zeros_like", "ones_like"), ("softmax", "log_softmax")]
NAMES = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])} | {"sum": "mean", "mean": "sum"}


class Mutant(NamedTuple):
    name: str  # where: what → what instead
    line: int
    lines: range  # that tell whether the statement was run
    number: tuple[int, int]  # of the place, and of the change there
    always: bool  # whether the statement runs as the module is loaded


UNCHANGED = Mutant("nothing", 0, range(0), (-1, -1), True)


def places(node: ast.AST, above: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, ...]]:
    """All parts of a tree, each with those above it; types and decorators are left out."""
    yield (*above, node)
    skip = {"annotation", "returns", "decorator_list", "format_spec"}
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in skip:
                yield from places(child, (*above, node))


def changes(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[ast.AST]:
    """What could stand in a part's place."""
    match node:
        case ast.Compare(left, [*ops], right):
            for i, op in enumerate(ops):
                for new in SWAPS[type(op)]:
                    yield ast.Compare(left, [*ops[:i], new(), *ops[i + 1 :]], right)
        case ast.BinOp(left, op, right) if type(op) in SWAPS:
            for new in SWAPS[type(op)]:
                yield ast.BinOp(left, new(), right)
        case ast.AugAssign(target, op, value):
            yield from (ast.AugAssign(target, new(), value) for new in SWAPS.get(type(op), ()))
            yield ast.Pass()
        case ast.BoolOp(op, values):
            yield ast.BoolOp(SWAPS[type(op)][0](), values)
        case ast.UnaryOp(_, operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.If(test, body, orelse) | ast.While(test, body, orelse) if _is_plain(test):
            yield type(node)(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test, body, orelse) if _is_plain(test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.comprehension(target, source, [_, *_] as ifs, is_async):
            yield ast.comprehension(target, source, [], is_async)
            if _is_plain(ifs[0]):
                ifs = [ast.UnaryOp(ast.Not(), ifs[0]), *ifs[1:]]
                yield ast.comprehension(target, source, ifs, is_async)
        case ast.Return(value) if value is not None and not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Assign([target]) if _was_there(target, above):
            yield ast.Pass()
        case ast.Call(ast.Name(name), args, keywords) if name in NAMES:
            yield ast.Call(ast.Name(NAMES[name], ast.Load()), args, keywords)
        case ast.Call(ast.Attribute(value, name), args, keywords) if name in NAMES:
            yield ast.Call(ast.Attribute(value, NAMES[name], ast.Load()), args, keywords)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_plain(test: ast.expr) -> bool:
    """Whether nothing else turns a condition round."""
    turned = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return not turned and not isinstance(test, ast.Compare)


def _was_there(target: ast.AST, above: tuple[ast.AST, ...]) -> bool:
    """Whether something is assigned that had a value before."""
    if isinstance(target, ast.Attribute | ast.Subscript):
        return True
    scope = next((n for n in reversed(above) if isinstance(n, ast.FunctionDef)), None)
    if scope is None or not isinstance(target, ast.Name):
        return False
    known = {n.arg for n in ast.walk(scope.args) if isinstance(n, ast.arg)}
    stored = (n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.lineno < target.lineno)
    return target.id in known | {n.id for n in stored if isinstance(n.ctx, ast.Store)}


def mutants_of(source: str) -> list[Mutant]:
    found: dict[str, Mutant] = {}
    for i, (*above, node) in enumerate(places(ast.parse(source))):
        inside = [n for n in (*above, node) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        statement = next((n for n in (node, *reversed(above)) if isinstance(n, ast.stmt)), node)
        for j, new in enumerate(changes(node, tuple(above))):
            before, after = _told(node, new, above)
            name = f"{'.'.join(n.name for n in inside)}: {before} → {after}".lstrip(": ")
            alike = sum(other.partition(" #")[0] == name for other in found)
            name += f" #{alike + 1}" if alike else ""
            always = not any(isinstance(n, ast.FunctionDef) for n in inside)
            found[name] = Mutant(name, statement.lineno, _lines(statement), (i, j), always)
    return list(found.values())


def _lines(statement: ast.stmt) -> range:
    """The lines that tell whether a statement was run: of a function, those of its body."""
    last, body = statement.end_lineno or 0, getattr(statement, "body", None)
    if isinstance(statement, ast.FunctionDef):
        return range(statement.body[0].lineno, last + 1)
    return range(statement.lineno, max(body[0].lineno, statement.lineno + 1) if body else last + 1)


def _told(node: ast.AST, new: ast.AST, above: list[ast.AST]) -> tuple[str, str]:
    """A change in words; of a number, the expression around it."""
    inner = (ast.UnaryOp, ast.Slice, ast.Tuple)
    shown = (ast.expr, ast.Assign, ast.AnnAssign)
    around = [n for n in above if isinstance(n, shown) and not isinstance(n, inner)]
    if not isinstance(node, ast.Constant) or not around:
        return _text(node), _text(new)
    before = _text(around[-1])
    _put(above[-1], node, new)
    after = _text(around[-1])
    _put(above[-1], new, node)
    return before, after


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.comprehension):
        return " ".join(["…", *(f"if {ast.unparse(test)}" for test in node.ifs)])
    first = ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]
    return first if len(first) < 90 else first[:89] + "…"


def mutated(source: str, number: tuple[int, int]) -> ast.Module:
    """The tree of a module with one change."""
    tree = ast.parse(source)
    if number == UNCHANGED.number:
        return tree
    *above, node = list(places(tree))[number[0]]
    new = list(changes(node, tuple(above)))[number[1]]
    _put(above[-1], node, new)
    return ast.fix_missing_locations(tree)


def _put(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(parent):
        if isinstance(value, list):
            setattr(parent, field, [new if child is old else child for child in value])
        elif value is old:
            setattr(parent, field, new)
