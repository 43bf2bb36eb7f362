"""Blocks in, plans out."""

import array
import copy
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import steeve


def random_blocks(seed: int, count: int) -> tuple[list[int], list[int], list[int]]:
    """Return random blocks, of ends of ranges more often than not."""
    rng = random.Random(seed)
    lower = [rng.choice([0, rng.randrange(count + 1)]) for _ in range(count)]
    upper = [start + 1 + rng.choice([0, 1, rng.randrange(count + 1)]) for start in lower]
    size = [rng.choice([0, 1, 64, rng.randrange(1 << 20)]) for _ in range(count)]
    return lower, upper, size


@pytest.mark.parametrize("seed", range(60))
def test_plans_are_right_and_no_smaller_than_their_bound(seed: int) -> None:
    rng = random.Random(seed)
    blocks = random_blocks(seed, rng.choice([0, 1, 2, 40, 200]))
    align = rng.choice([None, 1, 64, [rng.choice([1, 16, 4096]) for _ in blocks[0]]])
    max_buffer = rng.choice([None, 1 << 19])
    strategy = rng.choice(["fast", "best", "best-fit"])
    budget = "200nodes" if strategy == "best" else None
    plan = steeve.plan(*blocks, align=align, max_buffer=max_buffer, strategy=strategy, budget=budget)
    buffers = [place.buffer for place in plan.places]
    assert steeve.check(*blocks, plan.offsets, buffers=buffers, align=align, max_buffer=max_buffer) == []
    assert plan.bound <= plan.peak == sum(plan.buffers)
    assert plan.optimal == (plan.bound == plan.peak)
    assert len(plan) == len(plan.offsets) == len(blocks[0])
    live = max((sum(s for a, b, s in zip(*blocks, strict=True) if a <= t < b) for t in set(blocks[0])), default=0)
    assert plan.bound >= live


def test_a_moved_block_is_found() -> None:
    rng = random.Random(7)
    found = 0
    for seed in range(40):
        lower, upper, size = random_blocks(seed, 30)
        offsets = list(steeve.plan(lower, upper, size).offsets)
        moved = rng.randrange(30)
        offsets[moved] = rng.choice([0, offsets[moved] + 1, 2**64 - 1])
        overlaps = any(
            lower[i] < upper[moved]
            and lower[moved] < upper[i]
            and offsets[i] < offsets[moved] + size[moved]
            and offsets[moved] < offsets[i] + size[i]
            for i in range(30)
            if i != moved and size[i] and size[moved]
        )
        wrong = steeve.check(lower, upper, size, offsets)
        outside = offsets[moved] + size[moved] >= 2**64
        assert bool(wrong) == (overlaps or outside), (seed, wrong)
        assert all(moved in it.blocks for it in wrong if it.kind == "overlap")
        found += bool(wrong)
    assert found > 10


FORMS = [
    list,
    tuple,
    lambda numbers: np.array(numbers, dtype=np.int64),
    lambda numbers: np.array(numbers, dtype=np.uint64),
    lambda numbers: np.array(numbers, dtype=np.int32),
    lambda numbers: np.repeat(np.array(numbers), 2)[::2],
    lambda numbers: np.array(numbers, dtype=">i8").astype("=i8"),
    lambda numbers: array.array("q", numbers),
    lambda numbers: array.array("L", numbers),
    lambda numbers: memoryview(array.array("Q", numbers)),
    lambda numbers: [np.int16(number % 30000) if number < 30000 else number for number in numbers],
    lambda numbers: iter(numbers),
]


def test_all_forms_of_numbers_are_the_same() -> None:
    blocks = random_blocks(3, 100)
    expected = steeve.plan(*blocks, align=64).offsets
    for form in FORMS:
        assert steeve.plan(*(form(numbers) for numbers in blocks), align=64).offsets == expected
    ranges = steeve.plan(range(0, 5), range(2, 7), [64] * 5)
    assert ranges.peak == 128
    assert steeve.plan(np.array([], dtype=np.int64), [], []).peak == 0


NAN = float("nan")
WRONG = [
    (TypeError, "lower: wrong type", dict(lower=5)),
    (TypeError, "lower: wrong type", dict(lower="01")),
    (TypeError, "lower: wrong type", dict(lower=b"\0\1")),
    (TypeError, "lower: wrong type", dict(lower={0: 0, 1: 1})),
    (TypeError, "lower: wrong type", dict(lower={0, 1})),
    (TypeError, "lower: wrong type", dict(lower=None)),
    (TypeError, "size[1]: wrong type: expected a whole number, got float", dict(size=[1, 1.5])),
    (TypeError, "size[1]: wrong type: expected a whole number, got str", dict(size=[1, "2"])),
    (TypeError, "size[0]: wrong type: expected a whole number, got bool", dict(size=[True, 2])),
    (TypeError, "size: wrong type: expected whole numbers", dict(size=np.array([1.0, 2.0]))),
    (TypeError, "size: wrong type: expected whole numbers", dict(size=np.array([True, False]))),
    (steeve.InvalidArgument, "size: wrong shape: expected one dimension, got 2", dict(size=np.array([[1, 2]]))),
    (steeve.InvalidArgument, "size[1]: out of range: expected 0 to 2^64 - 1, got -1", dict(size=[1, -1])),
    (steeve.InvalidArgument, "size[1]: out of range: expected 0 to 2^64 - 1, got -1", dict(size=np.array([1, -1]))),
    (steeve.InvalidArgument, "size[0]: out of range", dict(size=[2**64, 1])),
    (steeve.InvalidArgument, "size[0]: out of range", dict(size=[2**400, 1])),
    (steeve.InvalidArgument, "size[1]: missing", dict(size=[1, None])),
    (steeve.InvalidArgument, "upper: wrong length: expected 2 as in lower, got 1", dict(upper=[1])),
    (steeve.InvalidArgument, "upper[1]: not above lower[1]: expected more than 1, got 1", dict(upper=[2, 1])),
    (steeve.InvalidArgument, "align: not an alignment: expected a power of two, got 3", dict(align=3)),
    (steeve.InvalidArgument, "align: not an alignment: expected a power of two, got 0", dict(align=0)),
    (steeve.InvalidArgument, "align[1]: not an alignment", dict(align=[1, 6])),
    (steeve.InvalidArgument, "align: wrong length", dict(align=[1])),
    (TypeError, "align: wrong type", dict(align=1.5)),
    (steeve.InvalidArgument, "follows[0]: no such block", dict(follows=[2, None])),
    (steeve.InvalidArgument, "follows[0]: out of range", dict(follows=[-2, None])),
    (steeve.InvalidInput, "block 0: starts at another step", dict(follows=[1, None])),
    (steeve.InvalidArgument, "pinned: wrong length", dict(pinned=[0])),
    (steeve.InvalidArgument, "pinned[0]: not a place", dict(pinned=[(0, 1, 2), None])),
    (steeve.InvalidArgument, "pinned[0]: buffer index too large", dict(pinned=[(2**40, 0), None])),
    (steeve.InvalidInput, "pinned blocks: inconsistent", dict(pinned=[0, 0])),
    (TypeError, "names: wrong type", dict(names="ab")),
    (TypeError, "names[1]: wrong type: expected str, got int", dict(names=["a", 1])),
    (steeve.InvalidArgument, "names: wrong length", dict(names=["a"])),
    (steeve.InvalidArgument, "capacity: out of range", dict(capacity=-1)),
    (TypeError, "capacity: wrong type", dict(capacity=1.5)),
    (steeve.InvalidArgument, "max_buffer: out of range", dict(max_buffer=2**64)),
    (steeve.InvalidArgument, "strategy: unknown", dict(strategy="fastest")),
    (steeve.InvalidArgument, "strategy: 'ggml' is for graphs", dict(strategy="ggml")),
    (steeve.InvalidArgument, "budget: only for strategy='best'", dict(strategy="fast", budget=1)),
    (steeve.InvalidArgument, "threads: only for strategy='best'", dict(threads=2)),
    (steeve.InvalidArgument, "threads: out of range", dict(strategy="best", threads=0)),
    (steeve.InvalidArgument, "budget: neither a time", dict(budget="soon")),
    (steeve.InvalidArgument, "budget: out of range", dict(budget=-1)),
    (steeve.InvalidArgument, "budget: out of range", dict(budget=NAN)),
    (steeve.InvalidArgument, "budget: out of range", dict(budget=1e300)),
    (TypeError, "budget: wrong type", dict(budget=[1])),
    (TypeError, "progress: wrong type", dict(progress=3)),
    (steeve.InvalidInput, "address space exceeded", dict(size=[2**63, 2**63])),
]


@pytest.mark.parametrize(("kind", "text", "change"), WRONG, ids=[f"{i} {text}" for i, (_, text, _) in enumerate(WRONG)])
def test_wrong_arguments_are_named(kind: type[Exception], text: str, change: dict[str, object]) -> None:
    arguments = {"lower": [0, 1], "upper": [2, 3], "size": [64, 64], **change}
    with pytest.raises(kind) as caught:
        steeve.plan(**arguments)
    assert text in str(caught.value)
    if isinstance(caught.value, steeve.InvalidArgument):
        assert caught.value.argument in change
        assert isinstance(caught.value, ValueError)


def test_what_does_not_fit_says_why() -> None:
    with pytest.raises(steeve.DoesNotFit) as caught:
        steeve.plan([0, 1, 5], [2, 3, 6], [64, 100, 7], names=["conv", "relu", "out"], capacity=128)
    error = caught.value
    assert (error.needs, error.capacity, error.proved, error.memory) == (164, 128, True, "memory")
    assert [(it.name, it.size) for it in error.alive] == [("relu", 100), ("conv", 64)]
    assert error.plan is not None and error.plan.peak == 164
    assert str(error) == "memory: does not fit: needs at least 164 bytes, got a capacity of 128"
    assert steeve.plan([0, 1], [2, 3], [64, 100], capacity=164).peak == 164


def test_what_was_only_not_found_is_not_called_proved(corpus) -> None:
    blocks = steeve.read(corpus / "blocks" / "H.1048576.csv")
    quick = blocks.plan(strategy="best-fit")
    with pytest.raises(steeve.DoesNotFit) as caught:
        blocks.plan(strategy="best-fit", capacity=quick.peak - 1)
    assert not caught.value.proved and caught.value.needs < quick.peak
    assert "no plan found that fits" in str(caught.value)


def test_plans_are_frozen_and_what_they_give_stays() -> None:
    plan = steeve.plan([0, 1], [2, 3], [64, 64])
    for name in ["peak", "offsets", "anything"]:
        with pytest.raises(AttributeError):
            setattr(plan, name, 0)
    assert plan.offsets is plan.offsets and plan.places is plan.places
    offsets, places = plan.offsets, plan.places
    del plan
    gc.collect()
    assert offsets == (0, 64) and places[1].offset == 64
    assert len({places[0], places[1], steeve.plan([0], [1], [64]).places[0]}) == 2


def test_pins_and_followers_are_kept() -> None:
    plan = steeve.plan([0, 1, 2], [2, 3, 4], [64, 64, 32], pinned=[128, None, -1], follows=[-1, -1, 0])
    assert plan.offsets[0] == plan.offsets[2] == 128
    assert steeve.check([0, 1], [2, 3], [64, 64], [0, 64], pinned=[64, None])[0].kind == "unpinned"
    assert steeve.plan([0, 0], [1, 1], [64, 64], pinned=[(1, 0), (0, 0)]).places[0].buffer == 1
    assert steeve.plan([0, 0], [1, 1], [64, 64], pinned=np.array([-1, 64])).offsets == (0, 64)


def test_the_hard_problems_are_solved(corpus) -> None:
    for path in sorted((corpus / "blocks").glob("?.1048576.csv")):
        plan = steeve.read(path).plan(strategy="best", capacity=1 << 20)
        assert plan.peak <= 1 << 20


def hard(corpus):
    """Return a problem that a search can't finish."""
    lower, upper, size = [], [], []
    for name in "AH":
        blocks = steeve.read(corpus / "blocks" / f"{name}.1048576.csv")
        lower += blocks.lower
        upper += blocks.upper
        size += blocks.size
    return lower, upper, size


def test_a_search_tells_how_far_it_is_and_ends_when_told(corpus) -> None:
    seen: list[steeve.Progress] = []

    def stop_soon(now: steeve.Progress) -> bool:
        seen.append(now)
        return now.seconds < 0.3

    start = time.monotonic()
    plan = steeve.plan(*hard(corpus), strategy="best", budget=timedelta(seconds=60), progress=stop_soon)
    assert time.monotonic() - start < 30
    assert len(seen) > 1 and seen[-1].seconds >= 0.3
    assert all(it.peak >= it.bound and it.nodes >= 0 for it in seen)
    assert steeve.check(*hard(corpus), plan.offsets) == []


def test_an_exception_of_progress_ends_the_search(corpus) -> None:
    def fail(now: steeve.Progress) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        steeve.plan(*hard(corpus), budget=60, progress=fail)
    with pytest.raises(TypeError, match="progress: wrong result"):
        steeve.plan(*hard(corpus), budget=60, progress=lambda now: "go on")


def test_progress_as_a_line_on_stderr(corpus, capsys: pytest.CaptureFixture[str]) -> None:
    steeve.plan(*hard(corpus), budget=1.5, progress=True)
    shown = capsys.readouterr().err
    assert "nodes, peak" in shown and shown.endswith("\r")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_a_search(corpus) -> None:
    program = (
        "import steeve, sys, time\n"
        f"lower, upper, size = {hard(corpus)!r}\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    steeve.plan(lower, upper, size, strategy='best', budget=60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=30)[0] == "interrupted\n"
        assert time.monotonic() - start < 20


def test_other_threads_run_while_a_plan_is_made(corpus) -> None:
    counts = [0]
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            counts[0] += 1
            time.sleep(0.01)

    other = threading.Thread(target=count)
    other.start()
    steeve.plan(*hard(corpus), strategy="best", budget=1.0)
    during = counts[0]
    done.set()
    other.join()
    assert during > 20


def test_threads_and_node_budgets_give_one_result(corpus) -> None:
    problem = hard(corpus)
    plans = [steeve.plan(*problem, strategy="best", budget="2000nodes", threads=n).offsets for n in (1, 1, 2)]
    assert plans[0] == plans[1] == plans[2]


def test_pictures_and_files(tmp_path) -> None:
    plan = steeve.plan([0, 1, 2], [2, 3, 4], [1000, 500, 1000], names=["a", "<b>", 'c"'])
    assert plan.svg().startswith("<svg ") and "<b>" not in plan.svg()
    assert plan.html().startswith("<!doctype html>")
    assert "<svg " in plan._repr_html_() and "http://" not in plan._repr_html_().replace("http://www.w3.org", "")
    for name in ["plan.json", "plan.csv", "plan.svg", "plan.html", "plan.h"]:
        plan.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0
    again = steeve.read(tmp_path / "plan.json")
    assert isinstance(again, steeve.Blocks)
    assert again.offsets == plan.offsets and again.check() == [] and again.names == ("a", "<b>", 'c"')
    assert again.plan(pinned=True).offsets == plan.offsets
    with pytest.raises(steeve.InvalidArgument, match="unknown file type"):
        plan.save(tmp_path / "plan.txt")
    with pytest.raises(steeve.InvalidArgument, match="not the plan of a TFLite model"):
        plan.save(tmp_path / "plan.tflite")
    with pytest.raises(FileNotFoundError) as caught:
        plan.save(tmp_path / "none" / "plan.json")
    assert caught.value.filename == str(tmp_path / "none" / "plan.json")
    with pytest.raises(IsADirectoryError):
        (tmp_path / "folder.json").mkdir()
        plan.save(tmp_path / "folder.json")
    assert sorted(path.name for path in tmp_path.iterdir() if "tmp" in path.name) == []


@pytest.mark.parametrize("kind", ["csv", "tflite", "graph", "json"])
def test_a_plan_is_never_written_over_what_it_was_made_of(kind: str, tmp_path, monkeypatch, request) -> None:
    path = tmp_path / f"input.{kind}"
    if kind == "tflite":
        path.write_bytes((request.getfixturevalue("models") / "tflm_hello_world_int8.tflite").read_bytes())
    elif kind == "graph":
        path = tmp_path / "input.json"
        path.write_text("x = input 16; y = silu x !output")
        path.rename(tmp_path / "input.graph.json")
        path = tmp_path / "input.graph.json"
    else:
        steeve.plan([0, 1], [2, 3], [64, 32]).save(path)
    before = path.read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / f"link{path.suffix}").symlink_to(path)
    os.link(path, tmp_path / f"hard{path.suffix}")
    monkeypatch.chdir(tmp_path)
    plans = [steeve.read(given).plan() for given in (path, path.name, f"./folder/link{path.suffix}")]
    monkeypatch.chdir(tmp_path / "folder")
    same = [path, f"../{path.name}", f"link{path.suffix}", tmp_path / f"hard{path.suffix}", f"../folder/../{path.name}"]
    for plan in plans:
        for over in same:
            with pytest.raises(steeve.InvalidArgument, match="path: .* would overwrite .*(input|link)"):
                plan.save(over)
            assert path.read_bytes() == before
    # Another file may be written twice, also one at an inode that was the input's.
    path.unlink()
    (tmp_path / f"hard{path.suffix}").unlink()
    for _ in range(2):
        plans[0].save(f"other{path.suffix}")


def copies(value):
    return [copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))]


def test_results_are_copied_and_pickled(own_graphs) -> None:
    plan = steeve.plan([0, 1, 2], [2, 3, 4], [64, 32, 64], align=[1, 8, 1], follows=[-1, -1, 0], names=["a", "b", "b"])
    for again in copies(plan):
        assert (again.offsets, again.peak, again.bound, again.seconds) == (
            plan.offsets,
            plan.peak,
            plan.bound,
            plan.seconds,
        )
        assert again.svg() == plan.svg() and again.place("b") == plan.place("b")
    assert (
        pickle.loads(pickle.dumps(steeve.plan([0, 0], [1, 1], [8, 8], pinned=[(1, 64), (0, 0)]))).places[0].buffer == 1
    )
    two = steeve.plan([0, 0], [1, 1], [64, 64], max_buffer=64)
    assert [pickle.loads(pickle.dumps(two)).buffers, copy.copy(two).buffers] == [two.buffers] * 2
    graph = steeve.read(own_graphs / "llm" / "qwen3-30b-a3b.c4096.fa1.out1.pp.json.gz")
    made = graph.plan()
    values = [plan.places[1], *plan.at_peak(), *plan.memories, *made.at_peak()[:2], *made.memories, *graph.tensors[:9]]
    values += steeve.check([0, 0], [1, 1], [8, 8], [0, 0])
    values += plan.compare(steeve.plan([0], [1], [5])).changes
    assert len({type(value) for value in values}) == 6
    for value in values:
        fields = [name for name in dir(value) if not name.startswith("_")]
        for again in copies(value):
            assert repr(again) == repr(value)
            assert [getattr(again, name) for name in fields] == [getattr(value, name) for name in fields]
    for value in (graph, made, made.compare(made)):
        assert copy.copy(value) is value and copy.deepcopy([value])[0] is value
    with pytest.raises(TypeError, match="plan of a graph can't be pickled: save it"):
        pickle.dumps(made)
    with pytest.raises(steeve.DoesNotFit) as caught:
        steeve.plan([0, 0], [1, 1], [8, 8], capacity=9)
    with pytest.raises(steeve.InvalidArgument, match='kind: unknown: .*got "PyGraph"'):
        steeve._steeve._restore("PyGraph", ())
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.needs, again.plan.peak) == (str(caught.value), 16, 16)


def test_a_builder_is_copied_as_it_is_now() -> None:
    builder = steeve.GraphBuilder()
    builder.input("x", 8)
    again = copy.deepcopy(builder)
    builder.input("y", 8)
    assert (len(builder), len(again)) == (2, 1)


def test_places_are_found_by_number_and_name() -> None:
    plan = steeve.plan([0, 1], [2, 3], [64, 32], names=["a", "b"])
    assert plan.place(1) == plan.place("b") == plan.places[1]
    assert plan.at_peak("memory")[0].name == "a"
    with pytest.raises(steeve.InvalidArgument, match="no such name"):
        plan.place("c")
    with pytest.raises(steeve.InvalidArgument, match="expected a number below 2, got 2"):
        plan.place(2)
    with pytest.raises(TypeError, match="a number or a name"):
        plan.place(1.5)
    with pytest.raises(steeve.InvalidArgument, match="no such memory"):
        plan.at_peak("gpu")


def test_a_result_overlaps_its_source_at_a_distance(tmp_path) -> None:
    lower, upper, size, overlaps = [0, 1], [2, 3], [64, 128], [None, (0, 80)]
    plan = steeve.plan(lower, upper, size, overlaps=overlaps)
    assert (plan.peak, plan.bound, plan.offsets) == (144, 144, (80, 0))
    assert steeve.plan(lower, upper, size).peak == 192
    assert steeve.check(lower, upper, size, plan.offsets, overlaps=overlaps) == []
    [near] = steeve.check(lower, upper, size, [79, 0], overlaps=overlaps)
    assert near.blocks == (0, 1) and near.kind
    plan.save(tmp_path / "plan.csv")
    blocks = steeve.read(tmp_path / "plan.csv")
    assert blocks.overlaps == (None, (0, 80)) and blocks.check() == []
    assert blocks.plan().peak == 144
    assert pickle.loads(pickle.dumps(plan)).offsets == plan.offsets


def test_wrong_overlaps_say_which(tmp_path) -> None:
    for wrong, kind, text in [
        ([None], steeve.InvalidArgument, "overlaps: wrong length: expected 2 as in lower, got 1"),
        ([None, (7, 0)], steeve.InvalidArgument, r"overlaps\[1\]: no such block"),
        ([None, (0, -1)], steeve.InvalidArgument, r"overlaps\[1\]: not an overlap"),
        ([None, 0], steeve.InvalidArgument, r"overlaps\[1\]: not an overlap"),
        ([(1, 0), None], steeve.InvalidInput, "block 0"),
        ("01", TypeError, "overlaps: wrong type"),
        (7, TypeError, "overlaps: wrong type"),
    ]:
        with pytest.raises(kind, match=text):
            steeve.plan([0, 1], [2, 3], [64, 128], overlaps=wrong)


def test_numbers_that_python_does_not_write_out_are_out_of_range() -> None:
    with pytest.raises(
        steeve.InvalidArgument, match=r"size\[0\]: out of range: expected 0 to 2\^64 - 1, got a number of 16610 bits"
    ):
        steeve.plan([0], [1], [10**5000])
