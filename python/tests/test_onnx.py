"""ONNX models: read at the sizes that are given for their free dimensions."""

import pytest

import steeve

FLOAT = 1


def field(number: int, value: bytes | str | int) -> bytes:
    """Return a field of a protobuf message; all lengths and numbers here are below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


@pytest.fixture
def model(tmp_path):
    """Return the path of a model: batch * 8 numbers, made positive, then turned."""
    dims = [field(1, field(2, "batch")), field(1, field(1, 8))]
    tensor = field(1, FLOAT) + field(2, b"".join(dims))
    value = field(1, "x") + field(2, field(1, tensor))
    relu = field(1, "x") + field(2, "y") + field(4, "Relu")
    turn = field(1, "y") + field(2, "z") + field(4, "Transpose")
    graph = field(1, relu) + field(1, turn) + field(11, value) + field(12, field(1, "z"))
    path = tmp_path / "net.onnx"
    path.write_bytes(field(1, 8) + field(8, field(2, 17)) + field(7, graph))
    return path


def test_a_model_is_planned_at_the_sizes_that_are_given(model, tmp_path) -> None:
    graph = steeve.read(model, dims={"batch": 4})
    plan = graph.plan()
    # Computed in place, and turned to a place of its own.
    assert plan.peak == 2 * 4 * 4 * 8
    assert [(it.name, it.kind, it.layout) for it in graph.tensors] == [
        ("x", "input", "f32[4,8]"),
        ("y", "node", "f32[4,8]"),
        ("z", "node", "f32[8,4]"),
    ]
    assert graph.plan(reuse="none").peak == plan.peak
    plan.save(tmp_path / "plan.json")
    assert graph.load(tmp_path / "plan.json").offsets == plan.offsets
    assert steeve.read(model, dims={"batch": 8}).check(tmp_path / "plan.json") != []


def test_what_is_left_free_is_named_with_an_example(model, tmp_path) -> None:
    with pytest.raises(steeve.InvalidArgument, match=r'dims: .*"batch".*such as dims=\{"batch": 1\}'):
        steeve.read(model)
    with pytest.raises(steeve.InvalidArgument, match='"height": no such dimension: expected one of "batch"'):
        steeve.read(model, dims={"batch": 1, "height": 2})
    with pytest.raises(TypeError, match="dims: wrong type: expected a dict of sizes by name, got list"):
        steeve.read(model, dims=[1])
    for size in (-1, 2**64, None):
        with pytest.raises(steeve.InvalidArgument, match="dims: out of range"):
            steeve.read(model, dims={"batch": size})
    (tmp_path / "net.graph").write_text("x = input 16; y = neg x !output")
    with pytest.raises(steeve.InvalidArgument, match="dims: for ONNX models"):
        steeve.read(tmp_path / "net.graph", dims={"batch": 1})
