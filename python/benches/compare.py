"""Peaks and times of `steeve.plan` beside those of PyPI `omnimalloc`, in the same run.

    pip install numpy omnimalloc==1.0.0 path/to/steeve-0.1.0-*.whl
    python python/benches/compare.py ../shared/corpus

Times are the least of several runs, in milliseconds, from lists to a plan. `call/Rust` is the time of the whole
call over that of planning and proving in Rust alone (`plan.seconds`), `numpy/Rust` the same from NumPy arrays.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import omnimalloc

import steeve

# What omnimalloc takes if it is not told otherwise, and those of its allocators that may do better.
PEERS = ["default", "omni", "telamalloc", "supermalloc"]
PATIENCE = 10.0


def least(act: Callable[[], Any], seconds: float = 0.5) -> tuple[float, Any]:
    """Return the least time of several runs, and the last result."""
    best, result, start = float("inf"), None, time.perf_counter()
    while best == float("inf") or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        result = act()
        best = min(best, time.perf_counter() - begin)
    return best, result


def peer_peak(placed: Any) -> int:
    """Return the bytes that omnimalloc needs."""
    return max((allocation.offset + allocation.size for allocation in placed), default=0)


def peers(blocks: steeve.Blocks) -> dict[str, tuple[float, int]]:
    """Return time and peak of omnimalloc's allocators, of those that end in time."""
    rounded = [-(-size // align) * align for size, align in zip(blocks.size, blocks.align, strict=True)]
    rows = [row for row in zip(blocks.lower, blocks.upper, rounded, strict=True) if row[2] > 0]
    known = {str(name) for name in omnimalloc.available_allocators()}
    found = {}
    for name in PEERS:
        if name != "default" and name not in known:
            continue
        allocator = None if name == "default" else name

        def act(allocator: str | None = allocator) -> Any:
            allocations = tuple(
                omnimalloc.Allocation(id=index, size=size, start=lower, end=upper)
                for index, (lower, upper, size) in enumerate(rows)
            )
            return omnimalloc.allocate(allocations, allocator=allocator)

        start = time.perf_counter()
        try:
            act()
        except Exception as error:  # noqa: BLE001
            print(f"  {name}: {type(error).__name__}: {error}"[:100])
            continue
        patience = 0.5 if time.perf_counter() - start < PATIENCE else 0.0
        seconds, placed = least(act, patience)
        found[name] = (seconds, peer_peak(placed))
    return found


def main() -> None:
    """Print a line for each problem."""
    parser = argparse.ArgumentParser(description="Compare steeve.plan with omnimalloc.")
    parser.add_argument("corpus", type=Path, help="the folder with blocks/ and executorch/")
    corpus = parser.parse_args().corpus
    paths = [*sorted((corpus / "blocks").glob("?.1048576.csv")), corpus / "blocks" / "resnet50.csv"]
    paths += sorted((corpus / "executorch").glob("*.csv"))
    print("problem blocks bound | fast: peak ms call/Rust numpy/Rust | best: peak ms | omnimalloc: allocator peak ms")
    for path in paths:
        blocks = steeve.read(path)
        assert isinstance(blocks, steeve.Blocks)
        lists = [list(blocks.lower), list(blocks.upper), list(blocks.size)]
        arrays = [np.array(numbers) for numbers in lists]
        align = list(blocks.align)
        fast, plan = least(lambda: steeve.plan(*lists, align=align))
        rust = min(steeve.plan(*lists, align=align).seconds for _ in range(200))
        from_arrays, _ = least(lambda: steeve.plan(*arrays, align=np.array(align)))
        best, searched = least(lambda: steeve.plan(*lists, align=align, strategy="best"))
        others = "; ".join(f"{name} {peak} {time_ * 1e3:.2f}" for name, (time_, peak) in peers(blocks).items())
        print(
            f"{path.name} {len(blocks)} {searched.bound} | {plan.peak} {fast * 1e3:.2f} {fast / rust:.2f}"
            f" {from_arrays / rust:.2f} | {searched.peak} {best * 1e3:.2f} | {others}",
            flush=True,
        )


if __name__ == "__main__":
    main()
