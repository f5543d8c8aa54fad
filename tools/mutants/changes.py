"""Makes single-line faults in Python source: the mutants of a file, in the order of its text.

A fault is one of: a statement left out, a condition inverted, a comparison turned, a constant changed, an operator or a
function (``min``, ``all``, …) taken for its opposite. Strings, annotations and what only types read stay as they are.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

SMALL = 16
"""Whole numbers up to here become one larger, others twice as large: a limit may be known to a factor only."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
_NOT_READ = ("annotation", "returns", "type_params", "decorator_list")
_FORMAL = ("frozen", "slots", "strict")
_LEFT_OUT = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """A changed module: where, what was there and what is there now. ``lines`` are of the text as it is."""

    lines: range
    where: str
    is_inside: bool
    """Whether it is in the body of a function, which can be changed after the module was imported."""
    before: str
    after: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """What it is called in the list of those that change nothing: it survives a change elsewhere in the file."""
        return f"{self.where}: {self.before} → {self.after}"


def mutants(text: str) -> Iterator[Mutant]:
    """All of a module, each with a tree of its own."""
    tree = ast.parse(text)
    for place in _places(tree):
        for change in _changes(place.node):
            # The node is changed in the one tree, copied whole, and changed back: paths need not be followed.
            before = _said(place.statement)
            undo = change(place)
            after = _said(place.statement)
            changed = copy.deepcopy(tree)
            undo()
            after = "left out" if after == before else after
            ast.fix_missing_locations(changed)
            yield Mutant(_lines(place.statement), place.where, place.is_inside, before, after, changed)


@dataclass
class _Place:
    """A node, the statement that it is in, and the function or class around both."""

    node: ast.AST
    statement: ast.stmt
    where: str
    is_inside: bool
    block: list[ast.stmt] | None = None


_Item = TypeVar("_Item")
_Undo = Callable[[], None]
_Change = Callable[[_Place], _Undo]


def _places(tree: ast.Module) -> Iterator[_Place]:
    """Every node that may be changed."""
    for statement in tree.body:
        yield from _inside(_Place(statement, statement, "module", False, tree.body))


def _inside(place: _Place) -> Iterator[_Place]:
    """A statement, and what is in it."""
    statement = place.statement
    if _is_only_words(statement):
        return
    yield place
    inner = place
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        name = statement.name if place.where == "module" else f"{place.where}.{statement.name}"
        inner = replace(place, where=name, is_inside=place.is_inside or not isinstance(statement, ast.ClassDef))
    yield from _below(statement, place, inner)


def _below(node: ast.AST, place: _Place, inner: _Place) -> Iterator[_Place]:
    for name, value in ast.iter_fields(node):
        if name in _NOT_READ:
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, ast.stmt):
                yield from _inside(replace(inner, node=child, statement=child, block=children))
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                yield from _below(child, replace(place, node=child), inner)
            elif isinstance(child, ast.AST) and not (isinstance(child, ast.keyword) and child.arg in _FORMAL):
                found = replace(place, node=child)
                yield found
                yield from _below(child, found, inner)


def _is_only_words(node: ast.stmt) -> bool:
    """A docstring, an import, an assertion for the type checker, or an alias of a type."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(node.annotation)
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and _is_type(node.value)


def _is_type(node: ast.Subscript) -> bool:
    return ast.unparse(node.value) in ("Annotated", "Union", "Optional", "Literal", "Callable", "Dict", "List", "Tuple")


def _changes(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, _LEFT_OUT) or _is_kept_elsewhere(node):
        yield _leave_out
    if isinstance(node, ast.Return) and (node.value is None or isinstance(node.value, ast.Constant)):
        yield _leave_out
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not _is_turned(node.test):
        yield _swap(node, "test", _not(node.test))
    if isinstance(node, ast.comprehension):
        for number, one in enumerate(node.ifs):
            if not _is_turned(one):
                yield _exchange(node.ifs, number, _not(one))
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            yield _exchange(node.ops, number, _COMPARISONS[type(operator)]())
    if isinstance(node, ast.BoolOp):
        yield _swap(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS and not _is_of_types(node):
        yield _swap(node, "op", _OPERATORS[type(node.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        # ``not x`` becomes ``not not x``: a boolean still.
        minus = isinstance(node.op, ast.USub)
        yield _swap(node, "op", ast.UAdd()) if minus else _swap(node, "operand", _not(node.operand))
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield _swap(node, "value", _another(node.value))
    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        attribute = "id" if isinstance(node.func, ast.Name) else "attr"
        opposite = _OPPOSITES.get(getattr(node.func, attribute))
        if opposite is not None:
            yield _swap(node.func, attribute, opposite)


def _is_kept_elsewhere(node: ast.AST) -> bool:
    """Whether it writes to an object or a container. Without a name that is read later, every test fails."""
    return isinstance(node, ast.Assign) and any(isinstance(one, (ast.Attribute, ast.Subscript)) for one in node.targets)


def _is_turned(test: ast.expr) -> bool:
    """Whether turning its comparison is the same as inverting it."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return not isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _is_of_types(node: ast.BinOp | ast.AugAssign) -> bool:
    """``int | None`` is no arithmetic."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and "None" in ast.unparse(node)


def _another(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if value <= SMALL else value * 2
    return value * 2 if value else 1.0


def _swap(node: ast.AST, attribute: str, new: object) -> _Change:
    def change(place: _Place) -> _Undo:
        old = getattr(node, attribute)
        setattr(node, attribute, new)
        return lambda: setattr(node, attribute, old)

    return change


def _exchange(items: list[_Item], at: int, new: _Item) -> _Change:
    def change(place: _Place) -> _Undo:
        old, items[at] = items[at], new
        return lambda: items.__setitem__(at, old)

    return change


def _not(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _leave_out(place: _Place) -> _Undo:
    assert place.block is not None and isinstance(place.node, ast.stmt)
    at = next(number for number, one in enumerate(place.block) if one is place.node)
    return _exchange(place.block, at, ast.copy_location(ast.Pass(), place.node))(place)


def _lines(statement: ast.stmt) -> range:
    """Of a statement, without the statements in it."""
    inside = getattr(statement, "body", None)
    last = inside[0].lineno - 1 if inside else statement.end_lineno
    return range(statement.lineno, max(statement.lineno, last or 0) + 1)


def _said(statement: ast.stmt) -> str:
    """The first line of a statement, without decorators."""
    lines = ast.unparse(statement).split("\n")
    return next((line for line in lines if not line.startswith("@")), lines[0])
