"""Graphs: built, read, planned, checked, compared."""

import random
import shutil

import pytest

import steeve


def random_graph(seed: int) -> steeve.Graph:
    """Return a random graph with views, results in place, several results and weights."""
    rng = random.Random(seed)
    builder = steeve.GraphBuilder(rng.choice([1, 16, 256]))
    if rng.random() < 0.3:
        builder.memory("slow", 32)
    memories = [None] if rng.random() < 0.7 else ["memory"]
    size = lambda: rng.choice([0, 64, rng.randrange(1, 5000)])  # noqa: E731
    known = [builder.input(f"in{i}", size(), memory=rng.choice(memories)) for i in range(rng.randrange(1, 4))]
    known.append(builder.external("w", size()))
    sizes = {}
    for i in range(rng.randrange(1, 40)):
        sources = rng.sample(known, k=min(len(known), rng.randrange(1, 4)))
        overwrites = [source for source in sources if rng.random() < 0.5]
        more = [(f"n{i}.{k}", size()) for k in range(rng.choice([0, 0, 0, 1, 2]))]
        bytes_ = size()
        op = rng.choice(["conv", "relu"])
        node = builder.node(f"n{i}", bytes_, sources, op=op, overwrites=overwrites, results=more)
        known += [node, *range(node + 1, node + 1 + len(more))]
        sizes[node] = bytes_
        if rng.random() < 0.2 and bytes_ > 1:
            known.append(builder.view(f"v{i}", bytes_ // 2, node, offset=bytes_ // 2))
        if rng.random() < 0.1:
            builder.output(node)
    return builder.build(f"random {seed}")


@pytest.mark.parametrize("seed", range(80))
def test_random_graphs_are_planned_saved_and_loaded(seed: int, tmp_path) -> None:
    graph = random_graph(seed)
    plan = graph.plan()
    assert plan.bound <= plan.peak == sum(plan.buffers) == sum(memory.peak for memory in plan.memories)
    assert plan.peak <= graph.plan(reuse="none").peak
    assert len(plan.offsets) == len(graph.tensors) == len(graph) == len(plan)
    for tensor, place in zip(graph.tensors, plan.places, strict=True):
        root = tensor if tensor.view_of is None else graph.tensors[tensor.view_of]
        assert (place is None) == (root.kind == "external"), (tensor, place)
        if place is not None:
            assert place.size >= tensor.size and place.memory in graph.memories
    plan.save(tmp_path / "plan.json")
    assert graph.check(tmp_path / "plan.json") == []
    loaded = graph.load(steeve.read(tmp_path / "plan.json"))
    assert loaded.offsets == plan.offsets and loaded.peak == plan.peak
    for again in (loaded, graph.load(tmp_path / "plan.json")):
        with pytest.raises(steeve.InvalidArgument, match="would overwrite .*plan.json, which the plan was made of"):
            again.save(tmp_path / "plan.json")
        again.save(tmp_path / "again.json")
    assert plan.compare(loaded).difference == 0 and plan.compare(loaded).changes == ()


def test_a_wrong_plan_file_is_refused_with_what_is_wrong(tmp_path) -> None:
    builder = steeve.GraphBuilder(64)
    builder.output(builder.node("c", 256, [builder.node("b", 256, ["a"]) if builder.input("a", 256) == 0 else 0, "a"]))
    graph = builder.build()
    path = tmp_path / "plan.json"
    graph.plan().save(path)
    path.write_text(path.read_text().replace('"offset":256', '"offset":128'))
    faults = graph.check(path)
    assert any("overwritten" in str(fault) for fault in faults) and all(fault.kind for fault in faults)
    with pytest.raises(steeve.InvalidFile, match="the plan does not hold") as caught:
        graph.load(path)
    assert caught.value.path == str(path)
    assert [fault.kind for fault in random_graph(1).check(path)][0] == "other-graph"


def test_the_tensors_of_a_graph_are_those_that_were_added() -> None:
    builder = steeve.GraphBuilder()
    x = builder.input("x", 64)
    w = builder.external("w", 1024)
    cache = builder.external("cache", 4096)
    h = builder.node("h", 128, [x, w], op="MatMul", results=[("state", 32)])
    v = builder.view("v", 64, h, offset=64)
    k = builder.node("k", 64, [v], op="set_rows", into=cache, offset=128)
    y = builder.node("y", 64, ["v", "state"], op="add", overwrites=["v"])
    builder.output("y", "state")
    graph = builder.build("small")
    assert [x, w, cache, h, v, k, y] == [0, 1, 2, 3, 5, 6, 7]
    assert [tensor.name for tensor in graph.tensors] == ["x", "w", "cache", "h", "state", "v", "k", "y"]
    assert [tensor.index for tensor in graph.tensors] == list(range(8))
    tensors = graph.tensors
    assert (tensors[h].op, tensors[h].kind, tensors[h].memory) == ("matmul", "node", "memory")
    assert tensors[w].kind == "external" and tensors[w].memory is None
    assert tensors[x].kind == "input" and tensors[y].is_output and not tensors[h].is_output
    assert set(tensors[y].sources) == {v, 4} and tensors[v].view_of == h and tensors[v].kind == "view"
    assert [node.name for node in graph.nodes if node.kind == "node"][-1] == "y"
    plan = graph.plan()
    assert plan.place(graph.tensors[y]) == plan.place("y") == plan.place(7)
    assert plan.offsets[v] == plan.offsets[h] + 64 and plan.offsets[k] is None


def test_the_numbers_of_a_builder_are_those_of_its_graph_though_nothing_reads_a_tensor() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        builder = steeve.GraphBuilder()
        names = []
        for step in range(rng.randrange(2, 12)):
            kind = rng.choice(["input", "external", "node", "node", "view"]) if names else "input"
            name = f"{kind}{step}"
            if kind == "node":
                results = [(f"{name}.{i}", 8) for i in range(rng.choice([0, 0, 2]))]
                sources = rng.sample(names, min(len(names), rng.randrange(3)))
                assert builder.node(name, 64, sources, results=results) == len(names)
                names += [name, *(more for more, _ in results)]
                continue
            add = {"input": builder.input, "external": builder.external}.get(kind)
            number = builder.view(name, 4, rng.choice(names)) if add is None else add(name, 64)
            assert number == len(names)
            names.append(name)
        if rng.random() < 0.5:
            builder.output(rng.choice(names))
        graph = builder.build()
        assert [tensor.name for tensor in graph.tensors] == names
        plan = graph.plan()
        assert len(plan.offsets) == len(builder) == len(names)
        for number, (name, tensor) in enumerate(zip(names, graph.tensors, strict=True)):
            assert tensor.index == number and (tensor.size, tensor.kind) != (0, "input")
            assert tensor.kind == name.rstrip("0123456789.") or "." in name
            assert plan.place(number) == plan.place(name) == plan.place(tensor) == plan.places[number]
            if tensor.view_of is not None:
                root = plan.place(tensor.view_of)
                assert (plan.place(tensor) is None) == (root is None)


def test_a_tensor_of_another_graph_is_refused() -> None:
    def built(*names: str) -> steeve.Graph:
        builder = steeve.GraphBuilder()
        for name in names:
            builder.input(name, 64)
        return builder.build()

    small, large = built("a", "b"), built("b", "a", "c", "d")
    plan = small.plan()
    assert [plan.place(tensor) for tensor in built("a", "b").tensors] == list(plan.places)
    for tensor in large.tensors:
        with pytest.raises(steeve.InvalidArgument, match='tensor: a tensor of another graph: .*"' + tensor.name):
            plan.place(tensor)
    with pytest.raises(steeve.InvalidArgument, match="tensor: a tensor of another graph"):
        steeve.plan([0, 1], [2, 3], [64, 64]).place(large.tensors[3])
    builder = steeve.GraphBuilder()
    for act in (
        lambda: builder.view("v", 4, small.tensors[0]),
        lambda: builder.output(small.tensors[0]),
        lambda: builder.node("n", 4, [small.tensors[1]]),
        lambda: builder.node("n", 4, [], into=small.tensors[1]),
    ):
        with pytest.raises(steeve.InvalidArgument, match="a tensor of another graph"):
            act()
    assert len(builder) == 0
    builder.input("", 4)
    builder.output(builder.node("n", 4, [builder.build().tensors[0]]))


WRONG = [
    (steeve.InvalidArgument, "there is a tensor 'x'", lambda b: b.input("x", 1)),
    (steeve.InvalidArgument, "no such name: 'z'", lambda b: b.node("y", 1, ["z"])),
    (steeve.InvalidArgument, "expected a number below 1, got 5", lambda b: b.node("y", 1, [5])),
    (steeve.InvalidArgument, "got -1", lambda b: b.node("y", 1, [-1])),
    (TypeError, "sources: wrong type", lambda b: b.node("y", 1, "x")),
    (TypeError, "sources: wrong type", lambda b: b.node("y", 1, [1.5])),
    (steeve.InvalidArgument, "size: out of range", lambda b: b.node("y", -1, [])),
    (TypeError, "size: wrong type", lambda b: b.node("y", "1", [])),
    (steeve.InvalidArgument, "is no source of", lambda b: b.node("y", 1, [], overwrites=["x"])),
    (steeve.InvalidArgument, "is no source of", lambda b: b.node("y", 1, [], overlaps={"x": 1})),
    (steeve.InvalidArgument, "offset: only with into=", lambda b: b.node("y", 1, [], offset=1)),
    (steeve.InvalidArgument, "no such memory", lambda b: b.input("y", 1, memory="gpu")),
    (steeve.InvalidArgument, "there is a memory", lambda b: b.memory("memory")),
    (steeve.InvalidArgument, "not an alignment", lambda b: b.memory("gpu", 3)),
    (TypeError, "results[0]: wrong type", lambda b: b.node("y", 1, [], results=["z"])),
    (steeve.InvalidArgument, "there is a tensor 'y'", lambda b: b.node("y", 1, [], results=[("y", 1)])),
    (steeve.InvalidArgument, "there is a tensor 'z'", lambda b: b.node("y", 1, [], results=[("z", 1), ("z", 1)])),
    (steeve.InvalidInput, "view", lambda b: (b.view("y", 65, "x"), b.node("z", 1, ["y"]), b.build())),
    (steeve.InvalidInput, "2^64", lambda b: (b.node("y", 2**64 - 1, ["x"]), b.build().plan())),
]


@pytest.mark.parametrize(("kind", "text", "act"), WRONG, ids=[f"{i}" for i in range(len(WRONG))])
def test_wrong_graphs_are_refused_and_change_nothing(kind, text, act) -> None:
    builder = steeve.GraphBuilder()
    builder.input("x", 64)
    with pytest.raises(kind) as caught:
        act(builder)
    assert text.replace("'", '"') in str(caught.value).replace("'", '"')
    if "build" not in act.__code__.co_names:
        assert len(builder) == 1
        assert builder.input("y", 1) == 1


def test_capacities_by_memory() -> None:
    builder = steeve.GraphBuilder(64, memory="sram")
    builder.memory("psram", 64)
    builder.output(builder.node("y", 512, [builder.input("x", 1024)], memory="psram"))
    graph = builder.build()
    plan = graph.plan(capacity={"sram": 1024})
    assert [(memory.name, memory.peak) for memory in plan.memories] == [("sram", 1024), ("psram", 512)]
    with pytest.raises(steeve.DoesNotFit) as caught:
        graph.plan(capacity={"psram": 500})
    assert caught.value.memory == "psram" and [it.name for it in caught.value.alive] == ["y"]
    with pytest.raises(steeve.InvalidArgument, match='no such memory: expected one of sram, psram, got "gpu"'):
        graph.plan(capacity={"gpu": 500})
    with pytest.raises(steeve.DoesNotFit):
        graph.plan(capacity=600)


def test_what_another_order_can_do_is_not_called_impossible() -> None:
    builder = steeve.GraphBuilder()
    x = builder.input("x", 64)
    wide, a = builder.node("wide", 4096, [x]), builder.node("a", 4096, [x])
    builder.output(builder.node("y", 64, [wide, builder.node("b", 64, [a])]))
    graph = builder.build()
    with pytest.raises(steeve.DoesNotFit, match="does not fit: needs at least 8256 bytes in this order") as caught:
        graph.plan(capacity=5000)
    assert (caught.value.needs, caught.value.proved) == (8256, False)
    assert graph.plan(capacity=5000, order="best").peak == 4224


def test_recorded_graphs_are_planned_as_the_command_does(own_graphs) -> None:
    if not own_graphs.is_dir():
        pytest.skip("this is not a checkout")
    path = own_graphs / "llm" / "qwen3-30b-a3b.c4096.fa1.out1.pp.json.gz"
    graph = steeve.read(path)
    plan, ggml = graph.plan(), graph.plan(strategy="ggml")
    assert (plan.peak, plan.optimal, ggml.peak) == (54814752, True, 96481312)
    assert len(graph.nodes) == 3030
    comparison = ggml.compare(plan)
    assert comparison.difference == plan.peak - ggml.peak and "<svg " in comparison._repr_html_()
    assert plan.at_peak() and plan.at_peak()[0].why
    with pytest.raises(steeve.InvalidArgument, match="overlap: only for TFLite models"):
        graph.plan(overlap="tflm-reference")
    with pytest.raises(steeve.InvalidArgument, match="'best-fit' is for blocks"):
        graph.plan(strategy="best-fit")


def test_models_get_smaller_and_stay_the_same_otherwise(models, tmp_path) -> None:
    path = models / "mlperf_vww_96_int8.tflite"
    graph = steeve.read(path)
    plan = graph.plan()
    assert (plan.peak, plan.tflm_head) == (55296, (55296, 73728))
    lapped = graph.plan(overlap="tflm-reference")
    assert lapped.peak == lapped.tflm_head[0] < 46608
    lapped.save(tmp_path / "planned.tflite")
    planned = steeve.read(tmp_path / "planned.tflite")
    assert [tensor.name for tensor in planned.tensors] == [tensor.name for tensor in graph.tensors]
    assert (tmp_path / "planned.tflite").stat().st_size < path.stat().st_size + 4096
    with pytest.raises(steeve.InvalidArgument, match="unknown kernels"):
        graph.plan(in_place="cmsis")


def test_what_can_not_be_read_says_why(tmp_path, models) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        steeve.read(tmp_path / "none.csv")
    assert caught.value.filename == str(tmp_path / "none.csv")
    with pytest.raises(IsADirectoryError):
        steeve.read(tmp_path)
    texts = {"a.csv": "a,b\n", "b.json": "{", "c.graph": "y = neg x", "d.csv": "", "e.tflite": "TFL3", "f.onnx": "x"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(steeve.InvalidFile) as wrong:
            steeve.read(tmp_path / name)
        assert name in str(wrong.value) and wrong.value.path == str(tmp_path / name)
    with pytest.raises(TypeError):
        steeve.read(3)
    damaged = (models / "hey_jarvis.tflite").read_bytes()
    (tmp_path / "cut.tflite").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(steeve.InvalidFile):
        steeve.read(tmp_path / "cut.tflite")
    shutil.copy(models / "hey_jarvis.tflite", tmp_path / "a.tflite")
    with pytest.raises(steeve.InvalidFile, match="raise the limit with max_bytes"):
        steeve.read(tmp_path / "a.tflite", max_bytes=1000)


def test_another_order_is_one_in_which_every_source_is_computed_before(tmp_path) -> None:
    moved = 0
    for seed in range(60):
        graph = random_graph(seed)
        keep, best = graph.plan(order="keep"), graph.plan(order="best")
        assert best.peak <= keep.peak == graph.plan().peak and keep.order is None
        if best.order is None:
            continue
        moved += 1
        nodes = [node for node in graph.nodes if node.kind == "node"]
        others = {tensor.index for tensor in graph.tensors if "." in tensor.name}
        assert sorted(best.order) == sorted(node.index for node in nodes if node.index not in others)
        # Another result of a node comes before its first one, by number behind it.
        first = {index: int(graph.tensors[index].name.partition(".")[0][1:]) for index in others}
        by_name = {tensor.name: tensor.index for tensor in graph.tensors}
        turn = {node: place for place, node in enumerate(best.order)}
        for index, node in first.items():
            turn[index] = turn[by_name[f"n{node}"]]
        for node in best.order:
            for source in graph.tensors[node].sources:
                root = graph.tensors[source].view_of
                source = source if root is None else root
                assert (
                    source not in turn or turn[source] < turn[node] or source in others and turn[source] == turn[node]
                )
        best.save(tmp_path / "plan.json")
        assert graph.check(tmp_path / "plan.json") == []
        loaded = graph.load(tmp_path / "plan.json")
        assert (loaded.order, loaded.peak, loaded.offsets) == (best.order, best.peak, best.offsets)
        with pytest.raises(steeve.InvalidArgument, match="a C header has no order"):
            best.save(tmp_path / "plan.h")
    assert moved >= 5


def test_an_order_is_refused_where_there_is_none(models) -> None:
    graph = random_graph(1)
    with pytest.raises(steeve.InvalidArgument, match="expected 'keep' or 'best'"):
        graph.plan(order="random")
    with pytest.raises(steeve.InvalidArgument, match="keeps the order"):
        graph.plan(order="best", strategy="ggml")
    with pytest.raises(TypeError, match="order: wrong type"):
        graph.plan(order=True)
    with pytest.raises(steeve.InvalidArgument, match="runs in the order of its file"):
        steeve.read(models / "hey_jarvis.tflite").plan(order="best")
