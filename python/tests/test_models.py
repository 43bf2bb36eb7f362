"""TFLite models: kernels that are known, scratch buffers, records."""

from __future__ import annotations

import shutil
import struct

import pytest

import steeve


@pytest.fixture
def model(models):
    """Return the path of a model whose results may overlap their operands."""
    return models / "tflm_person_detect.tflite"


def test_a_plan_with_overlaps_is_loaded_and_checked_for_the_same_kernels(model, tmp_path) -> None:
    graph = steeve.read(model)
    plan = graph.plan(overlap="tflm-reference")
    assert plan.peak < graph.plan().peak
    plan.save(tmp_path / "plan.json")
    assert graph.check(tmp_path / "plan.json", overlap="tflm-reference") == []
    assert graph.load(tmp_path / "plan.json", overlap="tflm-reference").offsets == plan.offsets
    assert graph.check(tmp_path / "plan.json") != []
    with pytest.raises(steeve.InvalidFile, match="the plan does not hold"):
        graph.load(tmp_path / "plan.json")


def test_the_record_of_a_model_is_read_and_judged(model, tmp_path) -> None:
    graph = steeve.read(model)
    assert graph.record is None
    with pytest.raises(steeve.InvalidArgument, match="plan: missing: the graph has no record"):
        graph.check()
    with pytest.raises(steeve.InvalidFile, match="a model without the record of a plan"):
        graph.check(model)
    plan = graph.plan(in_place="tflm-reference", overlap="tflm-reference")
    plan.save(tmp_path / "planned.tflite")
    planned = steeve.read(tmp_path / "planned.tflite")
    named = {tensor.name: at for tensor, at in zip(planned.tensors, planned.record, strict=True) if at is not None}
    assert {name: plan.place(name).offset for name in named} == named and len(named) > 20
    kernels = {"overlap": "tflm-reference"}
    assert planned.check(**kernels) == graph.check(tmp_path / "planned.tflite", **kernels) == []
    faults = planned.check()
    assert faults and {it.kind for it in faults} == {"overlap"} and all(len(it.tensors) == 2 for it in faults)
    with pytest.raises(steeve.InvalidArgument, match="the record of a model can only be checked"):
        graph.load(tmp_path / "planned.tflite")


def test_a_damaged_record_is_an_error(model, tmp_path) -> None:
    steeve.read(model).plan().save(tmp_path / "planned.tflite")
    data = bytearray((tmp_path / "planned.tflite").read_bytes())
    count = len([it for it in steeve.read(tmp_path / "planned.tflite").record])
    assert count > 0
    # The number of offsets is behind the version and the number of subgraphs.
    at = data.index((1).to_bytes(4, "little") * 2)
    data[at + 8 : at + 12] = (1 << 30).to_bytes(4, "little")
    (tmp_path / "damaged.tflite").write_bytes(data)
    damaged = steeve.read(tmp_path / "damaged.tflite")
    for act in (damaged.check, lambda: damaged.record):
        with pytest.raises(steeve.InvalidInput, match="record of the plan: .* are needed"):
            act()


def test_scratch_buffers_take_room(model) -> None:
    graph = steeve.read(model)
    assert graph.plan(scratch=1000).peak > graph.plan(scratch=0).peak == graph.plan().peak
    with pytest.raises(steeve.InvalidArgument, match="scratch: out of range"):
        graph.plan(scratch=-1)
    for name in ("strategy", "reuse"):
        with pytest.raises(steeve.InvalidArgument, match=f"{name}: 'ggml' is for graphs of ggml"):
            graph.plan(**{name: "ggml"})
    builder = steeve.GraphBuilder()
    builder.output(builder.node("y", 8, []))
    for name, value in [("scratch", 8), ("in_place", "tflm-reference"), ("overlap", "tflm-reference")]:
        with pytest.raises(steeve.InvalidArgument, match=f"{name}: only for TFLite models"):
            builder.build().plan(**{name: value})


def test_a_model_is_written_beside_itself(model, tmp_path) -> None:
    copy = shutil.copy(model, tmp_path / "model.tflite")
    with pytest.raises(steeve.InvalidArgument, match="would overwrite"):
        steeve.read(copy).plan().save(copy)


class Table(dict):
    """A table of a FlatBuffer: values by slot."""


def write(out: bytearray, value: object) -> int:
    """Append a table, a list of tables, a list of numbers or a text, and return where it is."""
    out.extend(bytes(-len(out) % 4))
    if isinstance(value, Table):
        slots = max(value) + 1 if value else 0
        # Four bytes for each value, behind the distance to the table of slots.
        out.extend(struct.pack("<HH", 4 + 2 * slots, 4 + 4 * slots))
        out.extend(struct.pack(f"<{slots}H", *(4 + 4 * slot if slot in value else 0 for slot in range(slots))))
        start = len(out) - 4 - 2 * slots
        out.extend(bytes(-len(out) % 4))
        at = len(out)
        out.extend(struct.pack("<i", at - start) + bytes(4 * slots))
        items = [(at + 4 + 4 * slot, item) for slot, item in value.items()]
    elif isinstance(value, str):
        out.extend(struct.pack("<I", len(value)) + value.encode() + b"\0")
        return len(out) - len(value) - 5
    else:
        assert isinstance(value, list)
        at = len(out)
        out.extend(struct.pack("<I", len(value)) + bytes(4 * len(value)))
        items = [(at + 4 + 4 * index, item) for index, item in enumerate(value)]
    for where, item in items:
        number = item if isinstance(item, int) else write(out, item) - where
        out[where : where + 4] = struct.pack("<i", number)
    return at


def small_model(unused: int) -> bytes:
    """Return a model of one operator between 64 bytes and 64 bytes, beside a tensor that nothing uses."""
    int8, relu = 9, 19
    tensors = [Table({0: [1, size], 1: int8, 2: 0, 3: name}) for name, size in [("x", 64), ("y", 64), ("u", unused)]]
    graph = Table({0: tensors, 1: [0], 2: [1], 3: [Table({0: 0, 1: [0], 2: [1]})]})
    model = Table({0: 3, 1: [Table({0: relu, 2: 1, 3: relu})], 2: [graph], 3: "small", 4: [Table()]})
    out = bytearray(b"\0\0\0\0TFL3")
    out[:4] = struct.pack("<I", write(out, model))
    return bytes(out)


def test_a_capacity_counts_tensors_that_nothing_uses(tmp_path) -> None:
    (tmp_path / "small.tflite").write_bytes(small_model(4000))
    graph = steeve.read(tmp_path / "small.tflite")
    plan = graph.plan(capacity=4000)
    assert plan.peak == plan.tflm_head[0] == sum(plan.buffers) == 4000
    [memory] = graph.memories
    for capacity in (3999, 128, {memory: 2000}):
        with pytest.raises(steeve.DoesNotFit) as caught:
            graph.plan(capacity=capacity)
        assert caught.value.needs == 4000 and caught.value.plan.peak == 4000
    (tmp_path / "smaller.tflite").write_bytes(small_model(16))
    assert steeve.read(tmp_path / "smaller.tflite").plan(capacity=128).peak == 128


def test_the_tensors_of_a_model_are_found_in_its_plan_whatever_its_kernels_are(models) -> None:
    for path in sorted(models.glob("*.tflite")):
        graph = steeve.read(path)
        for options in ({}, {"scratch": 64}, {"in_place": "tflm-reference"}, {"overlap": "tflm-reference"}):
            plan = graph.plan(**options)
            # Steps of the runtime are nodes as well, behind the tensors; scratch buffers come between these.
            own = [tensor for tensor in graph.tensors if not tensor.name.startswith("step ")]
            assert [plan.place(tensor) for tensor in own] == list(plan.places[: len(own)]), (path, options)
