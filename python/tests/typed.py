"""A program that type checkers accept: `mypy --strict`, as `.ci/python` runs it. Nothing here is run."""

import array

import numpy as np

import steeve
import steeve.executorch

numbers = np.array([1, 2], dtype=np.int64)
plan = steeve.plan(numbers, numbers + 1, array.array("q", [8, 8]), align=np.int64(16), follows=[None, 0])
plan = steeve.plan(range(2), (it + 1 for it in range(2)), memoryview(b"ab"), pinned=[(0, 64), None], names=("a", "b"))
plan = steeve.plan([1], [2], [3], strategy="best", budget="5ms", progress=lambda now: now.peak > 3)
peak: int = plan.peak
for violation in steeve.check(numbers, numbers, numbers, plan.offsets):
    print(violation.kind, violation.blocks)
builder = steeve.GraphBuilder()
x = builder.input("x", np.int32(64))
builder.output(builder.node("y", 64, [x, "x"], overwrites={x}, overlaps={x: 16}, results=[("z", 8)]))
place: steeve.Place | None = builder.build().plan(capacity={"memory": 4096}).place("y")
read = steeve.read("model.tflite", max_bytes=1 << 20)
if isinstance(read, steeve.Graph):
    read.plan(overlap="tflm-reference").save("planned.tflite")
    fitted: steeve.Fitted = read.fit(capacity={"CPU": 1 << 20}, parts=4, beside=[read])
    costs: list[tuple[str, dict[str, int], int]] = [(it.action, it.bytes, it.more_nodes) for it in fitted.steps]
algorithm = steeve.executorch.planner("best", budget=0.5, capacity={1: 1 << 20})
