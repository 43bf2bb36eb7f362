"""Smaller memory plans for ExecuTorch.

``planner()`` is an algorithm for ``MemoryPlanningPass``, beside or instead of ExecuTorch's own::

    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
    from executorch.exir.passes import MemoryPlanningPass
    import steeve.executorch

    algorithm = steeve.executorch.planner()
    program = edge.to_executorch(ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(MemoryPlanningAlgorithmSuite([algorithm])),
    ))
    algorithm.plans[1]  # the plan of memory 1: in a notebook, a picture

Nothing of torch or ExecuTorch is imported here until ExecuTorch calls the algorithm.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from steeve._errors import DoesNotFit, InvalidArgument, InvalidInput
from steeve._steeve import Plan, plan

__all__ = ["Planner", "planner"]


def planner(
    strategy: str = "fast",
    *,
    budget: str | float | timedelta | None = None,
    threads: int | None = None,
    capacity: dict[int, int] | None = None,
) -> Planner:
    """Return an algorithm for ``MemoryPlanningAlgorithmSuite``.

    ``strategy``, ``budget`` and ``threads`` are those of ``steeve.plan``; ``strategy="best"`` searches. ``capacity``
    says for memories, by their ``mem_id``, how many bytes they have; what takes more is ``steeve.DoesNotFit``.

    >>> import steeve.executorch
    >>> steeve.executorch.planner("best", budget="500ms")
    Planner('best', budget='500ms')
    """
    return Planner(strategy, budget=budget, threads=threads, capacity=capacity)


@dataclass
class _Allocation:
    """What ``SpecAllocResult`` is in ExecuTorch, where that is not installed."""

    mem_id: int
    mem_obj_id: int
    mem_offset: int


@dataclass
class _Result:
    """What ``MemoryAlgoResult`` is in ExecuTorch, where that is not installed."""

    spec_dict: dict[Any, Any]
    bufsizes: list[int]


@dataclass
class _Root:
    """A spec with memory of its own, and when it or a view of it is needed: both steps included."""

    spec: Any
    first: int
    last: int


class Planner:
    """An algorithm for ``MemoryPlanningAlgorithmSuite``.

    After a call, ``plans`` has the plan of each memory, by its ``mem_id``.
    """

    def __init__(
        self,
        strategy: str = "fast",
        *,
        budget: str | float | timedelta | None = None,
        threads: int | None = None,
        capacity: dict[int, int] | None = None,
    ) -> None:
        """Keep the settings, and refuse wrong ones at once."""
        self.strategy = strategy
        self.budget = budget
        self.threads = threads
        self.capacity = _capacities(capacity)
        self.plans: dict[int, Plan] = {}
        plan([], [], [], strategy=strategy, budget=budget, threads=threads)
        # The suite tells algorithms apart by their names.
        self.__name__ = "steeve" if strategy == "fast" else f"steeve_{strategy.replace('-', '_')}"

    def __repr__(self) -> str:
        """Show the settings that are not the default."""
        settings = {"budget": self.budget, "threads": self.threads, "capacity": self.capacity}
        given = "".join(f", {name}={value!r}" for name, value in settings.items() if value)
        return f"Planner({self.strategy!r}{given})"

    def __call__(
        self,
        alignment: int,
        specs: Iterable[Any],
        graph_module: Any,
        graph_signature: Any = None,
        extra_padding: int = 0,
    ) -> Any:
        """Place all specs. The arguments and the result are ExecuTorch's."""
        alignment = _number("alignment", alignment, least=1)
        extra_padding = _number("extra_padding", extra_padding, least=0)
        specs = list(specs)
        for spec in specs:
            spec.realign(alignment)
        memories, views = _by_memory(specs)
        reserved = list(getattr(graph_module, "input_mem_buffer_sizes", None) or [])
        # A memory without a byte is none: in a suite, all algorithms must have found as many.
        while reserved and not reserved[-1]:
            del reserved[-1]
        sizes = [0] * max([2, len(reserved), *(mem_id + 1 for mem_id in memories)])
        # What submodules use while they run is at the start, also in memories that have nothing else.
        for mem_id, size in enumerate(reserved):
            sizes[mem_id] = size
            if mem_id not in memories:
                self._check_fits(mem_id, size, None)

        allocation, result = _result_types()
        placed: dict[Any, Any] = {}
        self.plans = {}
        for mem_id, roots in sorted(memories.items()):
            start = _round_up(sizes[mem_id], alignment)
            made = self._plan(mem_id, roots, alignment, start + extra_padding)
            self.plans[mem_id] = made
            sizes[mem_id] = start + made.peak + extra_padding
            self._check_fits(mem_id, sizes[mem_id], made)
            for root, offset in zip(roots, made.offsets, strict=True):
                assert offset is not None
                # All that share bytes must have the same object, and nothing else depends on it.
                placed[root.spec] = allocation(mem_id, 0, start + offset)
        for view in views:
            base, offset = _base_of(view)
            at = placed[base]
            placed[view] = allocation(at.mem_id, 0, at.mem_offset + offset)
        return result({spec: placed[spec] for spec in specs}, sizes)

    def _plan(self, mem_id: int, roots: list[_Root], alignment: int, beside: int) -> Plan:
        capacity = self.capacity.get(mem_id)
        try:
            return plan(
                [root.first for root in roots],
                # The last step is included in ExecuTorch.
                [root.last + 1 for root in roots],
                [root.spec.allocated_memory for root in roots],
                align=alignment,
                names=[_name_of(root.spec, index) for index, root in enumerate(roots)],
                capacity=None if capacity is None else max(0, capacity - beside),
                strategy=self.strategy,
                budget=self.budget,
                threads=self.threads,
            )
        except DoesNotFit as error:
            assert capacity is not None and error.plan is not None
            raise _does_not_fit(mem_id, error.needs + beside, capacity, error.plan, beside, error.proved) from None

    def _check_fits(self, mem_id: int, size: int, made: Plan | None) -> None:
        """Refuse a memory that is above its capacity because of what is beside its plan."""
        capacity = self.capacity.get(mem_id)
        if capacity is not None and size > capacity:
            beside = size - (made.peak if made else 0)
            raise _does_not_fit(mem_id, size, capacity, made, beside, True)


def _does_not_fit(mem_id: int, needs: int, capacity: int, made: Plan | None, beside: int, proved: bool) -> DoesNotFit:
    """Return the exception for a memory that takes more bytes than it has, with what is beside its plan."""
    if proved:
        message = f"does not fit: needs at least {needs} bytes"
    else:
        found = beside + (made.peak if made else 0)
        message = f"no plan found that fits: the smallest has {found} bytes, at least {needs} are needed"
    extra = f" ({beside} of them for submodules, padding and alignment)" if beside else ""
    return DoesNotFit(
        f"memory {mem_id}: {message}{extra}, got a capacity of {capacity}",
        memory=f"memory {mem_id}",
        needs=needs,
        capacity=capacity,
        proved=proved,
        alive=tuple(made.at_peak()) if made else (),
        plan=made,
    )


def _capacities(capacity: Mapping[int, int] | None) -> dict[int, int]:
    """Return the capacities by memory, or refuse what is none."""
    if capacity is None:
        return {}
    if not isinstance(capacity, Mapping):
        expected = "a dict from mem_id to bytes, such as {1: 512 * 1024}"
        raise TypeError(f"capacity: wrong type: expected {expected}, got {type(capacity).__name__}")
    return {
        _number("capacity: mem_id", mem_id, least=1): _number(f"capacity[{mem_id!r}]", size, least=0)
        for mem_id, size in capacity.items()
    }


def _number(what: str, value: Any, least: int) -> int:
    """Return a whole number, or refuse what is none."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{what}: wrong type: expected a whole number, got {type(value).__name__}")
    if number < least:
        raise InvalidArgument(f"{what}: out of range: expected {least} or more, got {number}", argument=what)
    return number


def _by_memory(specs: list[Any]) -> tuple[dict[int, list[_Root]], list[Any]]:
    """Sort specs into those with memory of their own, by memory, and views of them."""
    known = set(specs)
    memories: dict[int, list[_Root]] = {}
    roots: dict[Any, _Root] = {}
    views = []
    for spec in specs:
        first, last = _lifetime(spec)
        if _storage_base(spec) is not None:
            views.append(spec)
            continue
        mem_id = 1 if spec.mem_id is None else spec.mem_id
        if not isinstance(mem_id, int) or mem_id < 1:
            raise InvalidInput(f"{_describe(spec)}: mem_id: expected 1 or more (0 is for constants), got {mem_id!r}")
        roots[spec] = _Root(spec, first, last)
        memories.setdefault(mem_id, []).append(roots[spec])
    for view in views:
        base, offset = _base_of(view)
        if base not in known:
            raise InvalidInput(f"{_describe(view)}: its storage_base is not planned: expected it among the specs")
        if offset % view.alignment != 0:
            raise InvalidInput(
                f"{_describe(view)}: misaligned in its storage_base: "
                f"expected a multiple of {view.alignment}, got {offset}"
            )
        if offset + view.allocated_memory > base.allocated_memory:
            raise InvalidInput(
                f"{_describe(view)}: outside of its storage_base: expected at most {base.allocated_memory} bytes, "
                f"got {view.allocated_memory} at offset {offset}"
            )
        # ExecuTorch has extended the lifetime of the base already; other callers may not have.
        first, last = _lifetime(view)
        root = roots[base]
        root.first, root.last = min(root.first, first), max(root.last, last)
    return memories, views


def _storage_base(spec: Any) -> Any:
    """Return the spec that a view is one of. Specs of older versions have none."""
    return getattr(spec, "storage_base", None)


def _base_of(view: Any) -> tuple[Any, int]:
    """Return the spec with memory of its own that a view is in, and where."""
    base, offset = view, 0
    seen: list[Any] = []
    while _storage_base(base) is not None:
        if any(base is it for it in seen):
            raise InvalidInput(f"{_describe(view)}: storage_base: a circle")
        seen.append(base)
        step = base.storage_base_offset
        if not isinstance(step, int) or step < 0:
            raise InvalidInput(f"{_describe(view)}: storage_base_offset: expected 0 or more, got {step!r}")
        base, offset = base.storage_base, offset + step
    return base, offset


def _lifetime(spec: Any) -> tuple[int, int]:
    match spec.lifetime:
        case [int(first), int(last)] if 0 <= first <= last:
            return first, last
    raise InvalidInput(f"{_describe(spec)}: lifetime: expected its first and its last step, got {spec.lifetime}")


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _describe(spec: Any) -> str:
    return f"spec of {spec.allocated_memory} bytes, lifetime {spec.lifetime}"


def _name_of(spec: Any, index: int) -> str:
    """Return what pictures call a spec: type and shape, which is all that it says of itself."""
    shape = getattr(spec, "shape", None)
    if shape is None:
        return str(index)
    data_type = str(getattr(spec, "dtype", "")).removeprefix("torch.")
    return f"{index} {data_type}{list(shape)}"


def _result_types() -> tuple[Any, Any]:
    """Return ExecuTorch's classes for results, or stand-ins with the same fields where it is not installed."""
    try:
        memory_planning = importlib.import_module("executorch.exir.memory_planning")
    except ImportError:
        return _Allocation, _Result
    return memory_planning.SpecAllocResult, memory_planning.MemoryAlgoResult
