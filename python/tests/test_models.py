"""TFLite models: kernels that are known, scratch buffers, records."""

import shutil

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
