"""What arguments may be: every form of numbers, and what the message says of everything else."""

from __future__ import annotations

import array
import ctypes
import inspect
import sys
from collections.abc import Callable

import numpy as np
import pytest

import steeve
import steeve.executorch

INTEGERS = [f"{order}{sign}{bytes}" for order in "<>" for sign in "iu" for bytes in (1, 2, 4, 8)]
LAYOUTS: list[Callable[[np.ndarray], object]] = [
    lambda numbers: numbers,
    lambda numbers: np.repeat(numbers, 3)[::3],
    lambda numbers: numbers[::-1].copy()[::-1],
    lambda numbers: np.stack([numbers, numbers], axis=1)[:, 1],
    # Not aligned: one byte behind another thing.
    lambda numbers: np.frombuffer(b"x" + numbers.tobytes(), numbers.dtype, offset=1),
    lambda numbers: np.rec.fromarrays([numbers.astype("i1"), numbers], dtype=[("a", "i1"), ("b", numbers.dtype)])["b"],
    lambda numbers: (lambda it: it.flags.__setattr__("writeable", False) or it)(numbers.copy()),
    lambda numbers: memoryview(numbers),
    lambda numbers: numbers.astype(object),
]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_numbers_are_the_same_in_every_width_order_and_layout(dtype: str) -> None:
    limits = np.iinfo(dtype)
    wanted = sorted(
        {number for number in (0, 1, 2, 127, 255, 1 << 20, limits.max - 1, limits.max) if number <= limits.max}
    )
    given = np.array(wanted, dtype=dtype)
    count = len(wanted)
    for layout in LAYOUTS:
        # The last byte of all can't be a block's.
        pins = layout(np.minimum(given, (1 << 64) - 2) if dtype[1:] == "u8" else given)
        assert steeve.plan([0] * count, [1] * count, [0] * count, pinned=pins).offsets[:-1] == tuple(wanted[:-1])
        few = np.array([it for it in wanted if it < 1 << 32], dtype=dtype)
        sizes = steeve.plan(range(len(few)), range(1, len(few) + 1), layout(few)).places
        assert [place.size for place in sizes] == few.tolist()
        if dtype[1] == "i":
            below = given.copy()
            below[1] = limits.min
            with pytest.raises(steeve.InvalidArgument, match=rf"size\[1\]: out of range: .*, got {limits.min}"):
                steeve.plan(range(count), range(1, count + 1), layout(below))


@pytest.mark.parametrize("code", "bBhHiIlLqQ")
def test_numbers_of_other_modules_are_the_same(code: str) -> None:
    wanted = [0, 5, 127]
    assert [it.size for it in steeve.plan(range(3), range(1, 4), array.array(code, wanted)).places] == wanted
    native = {"b": "byte", "h": "short", "i": "int", "l": "long", "q": "longlong"}[code.lower()]
    kind = getattr(ctypes, f"c_{'u' if code.isupper() else ''}{native}")
    for it in {kind, getattr(kind, "__ctype_be__", kind), getattr(kind, "__ctype_le__", kind)}:
        assert [place.size for place in steeve.plan(range(3), range(1, 4), (it * 3)(*wanted)).places] == wanted


@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "f8", ">f8", "c16", "S1", "U1", "M8[s]", "m8[s]", "V4", "V0"])
def test_what_is_no_whole_number_is_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"size(\[0\])?: wrong type: expected (a )?whole number"):
        steeve.plan([0, 0], [1, 1], np.zeros(2, dtype))
    # What has no items has none of a wrong type. An empty array is one of floats unless it is told otherwise.
    assert steeve.plan([], [], np.zeros(0, dtype)).peak == 0


def test_a_character_is_no_number() -> None:
    for wrong in [memoryview(b"ab").cast("c"), np.array([1, "a"], dtype=object), np.array([1.0, 2], dtype=object)]:
        with pytest.raises(TypeError, match="size.*: wrong type: expected (a )?whole number"):
            steeve.plan([0, 0], [1, 1], wrong)


@pytest.mark.parametrize("claimed", [0, 1 << 20, 1 << 62, sys.maxsize])
def test_a_length_that_is_only_claimed_is_not_believed(claimed: int) -> None:
    class Claims(list):
        def __len__(self) -> int:
            return claimed

    assert steeve.plan([0, 1], [2, 3], Claims([64, 32]), align=16).peak == 96
    assert steeve.plan(Claims([0, 1]), Claims([2, 3]), [64, 32], pinned=Claims([None, (0, 0)])).offsets[1] == 0
    wrong = steeve.check([0, 1], [2, 3], [64, 32], Claims([0, 0]), follows=Claims([None, None]), align=Claims([1, 1]))
    assert [it.kind for it in wrong] == ["overlap"]
    builder = steeve.GraphBuilder()
    builder.node("y", 8, Claims([builder.input("x", 8)]), overwrites=Claims(["x"]), results=Claims([("z", 8)]))
    assert len(builder) == 3


def test_an_iterator_is_read_once() -> None:
    one_by_one = (number for number in [64, 32])
    assert steeve.plan(iter([0, 1]), iter([2, 3]), one_by_one, pinned=iter([(0, 64), None])).offsets[0] == 64


def node(name, size, sources, *, op="node", overwrites=None, overlaps=None, into=None, offset=None, results=None):
    """Add a node to a builder that has none yet."""
    fresh = steeve.GraphBuilder()
    fresh.input("x", 64)
    if offset is not None:
        into = "x"
    given = {"op": op, "overwrites": overwrites, "overlaps": overlaps, "into": into, "results": results}
    return fresh.node(name, size, sources, offset=offset, **given)


def functions():
    """Yield every public function with arguments that are right, and how it is called."""
    plan = steeve.plan([0, 1], [2, 3], [64, 32], names=["a", "b"])
    builder = steeve.GraphBuilder()
    x = builder.input("x", 64)
    y = builder.node("y", 64, [x])
    builder.output(y)
    graph = builder.build()
    blocks = {"lower": [0], "upper": [1], "size": [8]}
    yield steeve.plan, {**blocks, "strategy": "best", "budget": "1nodes"}
    yield steeve.check, {**blocks, "offsets": [0]}
    yield steeve.read, {"path": "nothing.csv"}
    yield steeve.GraphBuilder, {}
    yield builder.memory, {"name": "more"}
    yield builder.input, {"name": "in", "size": 8}
    yield builder.external, {"name": "w", "size": 8}
    yield node, {"name": "n", "size": 8, "sources": ["x"]}
    yield builder.view, {"name": "v", "size": 8, "of": x}
    yield builder.output, {}
    yield builder.build, {}
    yield graph.plan, {"strategy": "best", "budget": "1nodes"}
    yield graph.load, {"plan": "nothing.json"}
    yield graph.check, {"plan": "nothing.json"}
    yield plan.place, {"tensor": 0}
    yield plan.at_peak, {}
    yield plan.compare, {"other": plan}
    yield plan.save, {"path": "nothing.csv"}
    yield steeve.executorch.planner, {"strategy": "best", "budget": "1nodes"}


FUNCTIONS = [(function, right) for function, right in functions()]
PARAMETERS = [
    (function, right, name)
    for function, right in FUNCTIONS
    for name, it in inspect.signature(function).parameters.items()
    if it.kind is not inspect.Parameter.VAR_POSITIONAL
]


@pytest.mark.parametrize(
    ("function", "right", "name"), PARAMETERS, ids=[f"{function.__name__} {name}" for function, _, name in PARAMETERS]
)
def test_a_wrong_type_or_value_names_its_argument(function, right: dict[str, object], name: str, tmp_path) -> None:
    class Other:
        """No type that anything takes."""

    with pytest.raises(TypeError) as caught:
        function(**{**right, name: Other()})
    assert str(caught.value).startswith(f"{name}: wrong type: expected ") and str(caught.value).endswith("got Other")
    # Ends of ranges, and what can't be text.
    for value in (-1, 2**64, 2**4000, "\ud800", float("nan"), [], [None], {}, b"", True):
        try:
            function(**{**right, name: value})
        except (TypeError, steeve.Error) as error:
            assert name in str(error), (value, error)
        except (OSError, UnicodeEncodeError):
            # No dims are right, and then there is no file.
            assert name in ("path", "plan") or (name, value) == ("dims", {}), value


def test_the_stubs_have_every_default() -> None:
    # Text signatures that are written by hand agree with what is done.
    assert steeve.GraphBuilder().build().plan().memories[0].name == "memory"
    assert repr(steeve.GraphBuilder().build()).startswith('<steeve.Graph "graph"')
    builder = steeve.GraphBuilder()
    builder.node("y", 8, [])
    assert builder.build().nodes[0].op == "node"
