"""Graphs made to fit, and what is said where they do not."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import steeve

LAYER = """
w = external f32[16,640]; v = external f32[640,16]
x = input f32[16,80]
up = mul_mat w x
act = silu up
down = mul_mat v act
y = add down x !output
"""


def read(folder: Path, text: str, name: str = "net.graph") -> steeve.Graph:
    (folder / name).write_text(text)
    return steeve.read(folder / name)


def test_a_graph_fits_its_capacity_in_parts_and_says_what_was_done(tmp_path) -> None:
    graph = read(tmp_path, LAYER)
    [memory] = graph.memories
    seen = set()
    for capacity in (10**9, 215040, 215039, 150_000, 100_000, 50_000, 20_000):
        for given in (capacity, {memory: capacity}):
            fitted = graph.fit(capacity=given)
            assert fitted.plan.peak == fitted.steps[-1].bytes[memory] <= capacity
            assert fitted.graph.plan().peak == fitted.plan.peak
            assert fitted.beside == () and len(fitted.plan) == len(fitted.graph)
            assert {t.name for t in graph.tensors if t.kind != "node"} <= {t.name for t in fitted.graph.tensors}
        seen.add(len(fitted.graph))
        more = sum(step.more_nodes for step in fitted.steps)
        assert (more > 0) == (len(fitted.graph) > len(graph)) == (capacity < 215040)
    assert len(seen) > 3
    fitted.plan.save(tmp_path / "plan.json")
    assert fitted.graph.check(tmp_path / "plan.json") == []
    assert fitted.graph.load(tmp_path / "plan.json").offsets == fitted.plan.offsets
    assert graph.check(tmp_path / "plan.json") != []
    with pytest.raises(steeve.InvalidArgument, match="would overwrite .*net.graph"):
        fitted.plan.save(tmp_path / "net.graph")
    for step in fitted.steps:
        for again in (copy.copy(step), copy.deepcopy(step), pickle.loads(pickle.dumps(step))):
            assert (repr(again), again.bytes) == (repr(step), step.bytes)
    assert copy.copy(fitted) is fitted and copy.deepcopy([fitted])[0] is fitted
    assert repr(fitted) == f"<steeve.Fitted: 4 steps, peak={fitted.plan.peak}>"


def test_another_order_keeps_the_numbers_of_a_builder() -> None:
    builder = steeve.GraphBuilder()
    builder.external("unread", 64)
    x = builder.input("x", 64)
    wide, a = builder.node("wide", 4096, [x]), builder.node("a", 4096, [x])
    builder.output(builder.node("y", 64, [wide, builder.node("b", 64, [a])]))
    graph = builder.build()
    fitted = graph.fit(capacity=5000)
    assert fitted.plan.peak == 4224 and fitted.steps[-1].action.startswith("another order: ")
    assert [node.name for node in fitted.graph.nodes] == ["a", "b", "wide", "y"]
    assert [tensor.name for tensor in fitted.graph.tensors] == [tensor.name for tensor in graph.tensors]
    assert fitted.plan.place(wide) == fitted.plan.place("wide") == fitted.plan.place(graph.tensors[wide])


def test_what_does_not_fit_has_the_smallest_that_was_reached(tmp_path) -> None:
    graph = read(tmp_path, LAYER)
    [memory] = graph.memories
    with pytest.raises(steeve.DoesNotFit, match="too small: 10000 bytes available, at least ") as caught:
        graph.fit(capacity=10_000)
    error = caught.value
    assert (error.memory, error.capacity, error.proved) == (memory, 10_000, False)
    assert error.needs == error.plan.peak == error.fitted.plan.peak == error.fitted.steps[-1].bytes[memory]
    assert error.alive[0].name in str(error) and error.needs < graph.fit(capacity=20_000).plan.peak + 20_000
    assert graph.fit(capacity=error.needs).plan.peak == error.needs
    with pytest.raises(steeve.DoesNotFit) as caught:
        graph.fit(capacity=100_000, parts=2)
    halves = caught.value.fitted
    assert "in 2 parts" in halves.steps[2].action and halves.plan.peak > 100_000
    with pytest.raises(steeve.DoesNotFit) as caught:
        graph.fit(capacity=100_000, parts=1)
    assert caught.value.needs == graph.plan().peak == 215040


def test_graphs_beside_share_the_buffers(tmp_path) -> None:
    graph = read(tmp_path, LAYER)
    token = read(tmp_path, "x = input f32[16,1]; y = silu x !output", "token.graph")
    wide = read(tmp_path, "x = input f32[16384]; y = relu x; z = add y x !output", "wide.graph")
    fitted = graph.fit(capacity=100_000, beside=[token])
    assert [plan.peak for plan in fitted.beside] == [token.plan().peak]
    for name in ("token.graph", "net.graph"):
        with pytest.raises(steeve.InvalidArgument, match="would overwrite"):
            fitted.plan.save(tmp_path / name)
    with pytest.raises(steeve.DoesNotFit, match="by graph 1 beside it") as caught:
        graph.fit(capacity=100_000, beside=(token, wide))
    assert caught.value.needs == caught.value.plan.peak == wide.plan().peak
    assert {it.name for it in caught.value.alive} <= {"x", "y", "z"}


def test_what_fit_can_not_take_is_refused(tmp_path, models) -> None:
    graph = read(tmp_path, LAYER)
    model = steeve.read(models / "hey_jarvis.tflite")
    with pytest.raises(steeve.InvalidInput, match="fit: for graphs: got a TFLite model"):
        model.fit(capacity=1)
    with pytest.raises(steeve.InvalidArgument, match=r"beside\[1\]: .*got a TFLite model"):
        graph.fit(capacity=1, beside=[graph, model])
    with pytest.raises(TypeError, match=r"beside\[0\]: wrong type: expected a graph, got int"):
        graph.fit(capacity=1, beside=[3])
    for wrong in ("net.graph", 3, graph):
        with pytest.raises(TypeError, match="beside: wrong type: expected a sequence of graphs"):
            graph.fit(capacity=1, beside=wrong)
    other = steeve.GraphBuilder(memory="elsewhere").build()
    with pytest.raises(steeve.InvalidArgument, match=r"beside\[0\]: .*expected the memories of the graph"):
        graph.fit(capacity=1, beside=[other])
    with pytest.raises(steeve.InvalidArgument, match="capacity: missing"):
        graph.fit(capacity={})
    with pytest.raises(steeve.InvalidArgument, match="no such memory"):
        graph.fit(capacity={"gpu": 1})
    for wrong in (0, -1):
        with pytest.raises(steeve.InvalidArgument, match="parts: out of range"):
            graph.fit(capacity=1, parts=wrong)
    with pytest.raises(TypeError):
        graph.fit()
