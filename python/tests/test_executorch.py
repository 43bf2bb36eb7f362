"""The algorithm for ExecuTorch, on stand-ins for its specs: neither torch nor ExecuTorch is needed."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

import steeve
import steeve.executorch

# What ExecuTorch's own greedy algorithm takes.
GREEDY = {
    "resnet50": 14614528,
    "mobilenet_v3_small": 4898816,
    "densenet121": 9715712,
    "shufflenet_v2_x1_0": 4698112,
    "googlenet": 7307264,
    "mnasnet0_5": 5722112,
    "efficientnet_b0": 14753792,
}


@dataclass(eq=False)
class Spec:
    """The fields of ExecuTorch's ``TensorSpec`` that planning looks at."""

    nbytes: int
    lifetime: list[int | None]
    mem_id: int | None = None
    storage_base: Spec | None = None
    storage_base_offset: int = 0
    alignment: int = 16
    shape: list[int] = field(default_factory=list)
    mem_obj_id: int | None = None
    mem_offset: int | None = None

    @property
    def allocated_memory(self) -> int:
        return -(-self.nbytes // self.alignment) * self.alignment

    def realign(self, alignment: int) -> int:
        self.alignment = alignment
        return self.allocated_memory


def module(*sizes: int) -> SimpleNamespace:
    return SimpleNamespace(input_mem_buffer_sizes=list(sizes))


def verify(specs: list[Spec], result, alignment: int, reserved: dict[int, int] | None = None, padding: int = 0) -> None:
    """Check what ExecuTorch's verifier and its runtime need."""
    assert list(result.spec_dict) == specs
    at = {id(spec): result.spec_dict[spec] for spec in specs}
    for spec in specs:
        place = at[id(spec)]
        assert place.mem_offset % alignment == 0
        assert place.mem_offset >= (reserved or {}).get(place.mem_id, 0)
        assert place.mem_offset + spec.allocated_memory + padding <= result.bufsizes[place.mem_id]
        if spec.storage_base is not None:
            base = at[id(spec.storage_base)]
            assert (place.mem_id, place.mem_offset) == (base.mem_id, base.mem_offset + spec.storage_base_offset)
        elif spec.mem_id is not None:
            assert place.mem_id == spec.mem_id

    def chain(spec: Spec) -> list[Spec]:
        return [spec] if spec.storage_base is None else [spec, *chain(spec.storage_base)]

    for i, one in enumerate(specs):
        for other in specs[i + 1 :]:
            a, b = at[id(one)], at[id(other)]
            if a.mem_id != b.mem_id:
                continue
            shares = a.mem_offset < b.mem_offset + other.allocated_memory
            shares = shares and b.mem_offset < a.mem_offset + one.allocated_memory
            if not shares or not one.allocated_memory or not other.allocated_memory:
                continue
            assert a.mem_obj_id == b.mem_obj_id
            together = one.lifetime[0] <= other.lifetime[1] and other.lifetime[0] <= one.lifetime[1]
            assert not together or chain(one)[-1] is chain(other)[-1]


@pytest.mark.parametrize("name", GREEDY)
def test_every_model_is_at_its_bound_and_below_greedy(corpus, name: str) -> None:
    blocks = steeve.read(corpus / "executorch" / f"{name}.csv")
    specs = [
        Spec(size, [lower, upper - 1], alignment=align)
        for lower, upper, size, align in zip(blocks.lower, blocks.upper, blocks.size, blocks.align, strict=True)
    ]
    algorithm = steeve.executorch.planner()
    result = algorithm(16, specs, module(), None, 0)
    [plan] = algorithm.plans.values()
    assert plan.optimal and result.bufsizes == [0, plan.bound]
    assert plan.bound < GREEDY[name]
    verify(specs, result, 16)


def random_specs(seed: int) -> tuple[list[Spec], int]:
    rng = random.Random(seed)
    alignment = rng.choice([1, 16, 64])
    memories = rng.choice([[None], [None, 1], [1, 2], [2, 3]])
    specs: list[Spec] = []
    for _ in range(rng.choice([0, 1, 5, 60])):
        first = rng.randrange(40)
        life = [first, first + rng.choice([0, 1, rng.randrange(20)])]
        roomy = [spec for spec in specs if spec.nbytes >= alignment]
        if roomy and rng.random() < 0.2:
            base = rng.choice(roomy)
            offset = rng.randrange(base.nbytes // alignment) * alignment
            # A view's lifetime may be outside of its base's; ExecuTorch extends that before it asks.
            for it in [base, *([base.storage_base] if base.storage_base else [])]:
                it.lifetime = [min(it.lifetime[0], life[0]), max(it.lifetime[1], life[1])]
            root = base
            while root.storage_base is not None:
                root = root.storage_base
                root.lifetime = [min(root.lifetime[0], life[0]), max(root.lifetime[1], life[1])]
            specs.append(Spec(base.nbytes - offset, life, storage_base=base, storage_base_offset=offset))
        else:
            specs.append(Spec(rng.choice([0, 1, rng.randrange(1 << 16)]), life, rng.choice(memories)))
    rng.shuffle(specs)
    return specs, alignment


@pytest.mark.parametrize("seed", range(150))
def test_views_memories_reserved_bytes_and_padding(seed: int) -> None:
    specs, alignment = random_specs(seed)
    rng = random.Random(-seed)
    reserved = rng.choice([[], [0], [0, 100], [0, 7, 4096, 11]])
    padding = rng.choice([0, 64])
    for spec in specs:
        spec.realign(alignment)
    fits = all(
        spec.storage_base is None
        or spec.storage_base_offset + spec.allocated_memory <= spec.storage_base.allocated_memory
        for spec in specs
    )
    assert fits, "the generator makes views within their bases"
    algorithm = steeve.executorch.planner()
    result = algorithm(alignment, specs, module(*reserved), None, padding)
    verify(specs, result, alignment, dict(enumerate(reserved)), padding)
    assert len(result.bufsizes) >= 2 and result.bufsizes[0] == 0
    for mem_id, size in enumerate(reserved):
        assert result.bufsizes[mem_id] >= size


def test_the_lifetime_of_a_base_reaches_to_its_views() -> None:
    base, other = Spec(64, [0, 1]), Spec(64, [3, 4])
    view = Spec(32, [0, 5], storage_base=base, storage_base_offset=32)
    result = steeve.executorch.planner()(16, [view, other, base], module(), None, 0)
    assert result.bufsizes == [0, 128]
    assert result.spec_dict[view].mem_offset == result.spec_dict[base].mem_offset + 32


WRONG = [
    ("storage_base is not planned", lambda: [Spec(16, [0, 1], storage_base=Spec(32, [0, 1]))]),
    ("outside of its storage_base", lambda: (lambda b: [b, Spec(64, [0, 1], storage_base=b)])(Spec(32, [0, 1]))),
    (
        "misaligned in its storage_base",
        lambda: (lambda b: [b, Spec(16, [0, 1], storage_base=b, storage_base_offset=8)])(Spec(32, [0, 1])),
    ),
    (
        "storage_base_offset: expected 0 or more",
        lambda: (lambda b: [b, Spec(16, [0, 1], storage_base=b, storage_base_offset=-16)])(Spec(32, [0, 1])),
    ),
    ("lifetime: expected", lambda: [Spec(16, [None, None])]),
    ("lifetime: expected", lambda: [Spec(16, [3, 2])]),
    ("lifetime: expected", lambda: [Spec(16, ["0", 1])]),
    ("mem_id: expected 1 or more .*, got 0", lambda: [Spec(16, [0, 1], mem_id=0)]),
    ("mem_id: expected 1 or more .*, got 'a'", lambda: [Spec(16, [0, 1], mem_id="a")]),
]


@pytest.mark.parametrize(("text", "specs"), WRONG, ids=[text for text, _ in WRONG])
def test_wrong_specs_are_named(text: str, specs) -> None:
    with pytest.raises(steeve.InvalidInput, match=text):
        steeve.executorch.planner()(16, specs(), module(), None, 0)


def test_a_circle_of_views_is_refused() -> None:
    one, two = Spec(16, [0, 1]), Spec(16, [0, 1])
    one.storage_base, two.storage_base = two, one
    with pytest.raises(steeve.InvalidInput, match="a circle"):
        steeve.executorch.planner()(16, [one, two], module(), None, 0)


def test_a_capacity_counts_all_bytes_of_a_memory() -> None:
    specs = [Spec(64, [0, 1]), Spec(64, [1, 2])]
    assert steeve.executorch.planner(capacity={1: 256})(16, specs, module(0, 64), None, 64).bufsizes == [0, 256]
    with pytest.raises(steeve.DoesNotFit) as caught:
        steeve.executorch.planner(capacity={1: 255})(16, specs, module(0, 64), None, 64)
    error = caught.value
    assert (error.memory, error.needs, error.capacity, error.proved) == ("memory 1", 256, 255, True)
    assert [it.size for it in error.alive] == [64, 64] and error.plan is not None
    assert str(error).startswith("memory 1: does not fit: needs at least 256 bytes (128 of them for submodules, ")


@pytest.mark.parametrize("seed", range(30))
def test_a_capacity_is_kept_or_is_an_error(seed: int) -> None:
    specs, alignment = random_specs(seed)
    reserved, padding = random.Random(seed).choice([[], [0, 100], [0, 7, 4096, 11]]), seed % 3 * 32
    sizes = steeve.executorch.planner()(alignment, specs, module(*reserved), None, padding).bufsizes
    for mem_id in range(1, len(sizes)):
        for capacity in {0, sizes[mem_id] - 1, sizes[mem_id]} - {-1}:
            algorithm = steeve.executorch.planner(capacity={mem_id: capacity})
            if capacity >= sizes[mem_id]:
                assert algorithm(alignment, specs, module(*reserved), None, padding).bufsizes == sizes
                continue
            with pytest.raises(steeve.DoesNotFit, match=f"memory {mem_id}: .*, got a capacity of {capacity}") as caught:
                algorithm(alignment, specs, module(*reserved), None, padding)
            assert (caught.value.memory, caught.value.capacity) == (f"memory {mem_id}", capacity)
            assert not caught.value.proved or caught.value.needs > capacity


WRONG_SETTINGS = [
    (TypeError, "capacity: wrong type: expected a dict from mem_id to bytes", "1M"),
    (TypeError, "capacity: mem_id: wrong type: expected a whole number, got str", {"1": 4096}),
    (TypeError, "capacity: mem_id: wrong type: expected a whole number, got bool", {True: 4096}),
    (TypeError, r"capacity\[1\]: wrong type: expected a whole number, got str", {1: "1M"}),
    (steeve.InvalidArgument, "capacity: mem_id: out of range: expected 1 or more, got 0", {0: 4096}),
    (steeve.InvalidArgument, r"capacity\[1\]: out of range: expected 0 or more, got -1", {1: -1}),
]


@pytest.mark.parametrize(("kind", "text", "capacity"), WRONG_SETTINGS)
def test_a_capacity_that_would_mean_nothing_is_refused(kind: type[Exception], text: str, capacity) -> None:
    with pytest.raises(kind, match=text):
        steeve.executorch.planner(capacity=capacity)


def test_wrong_arguments_of_a_call_are_named() -> None:
    for alignment, text in [(0, "alignment: out of range: expected 1 or more"), ("16", "alignment: wrong type")]:
        with pytest.raises((TypeError, steeve.InvalidArgument), match=text):
            steeve.executorch.planner()(alignment, [Spec(16, [0, 1])], module(), None, 0)
    with pytest.raises(steeve.InvalidArgument, match="align: not an alignment: expected a power of two, got 3"):
        steeve.executorch.planner()(3, [Spec(16, [0, 1])], module(), None, 0)


def greedy_sizes(specs: list[Spec]) -> int:
    """Return how many sizes ExecuTorch's own algorithm returns: those of memories that the graph itself uses."""
    return max([1, *(1 if spec.mem_id is None else spec.mem_id for spec in specs if spec.storage_base is None)]) + 1


@pytest.mark.parametrize("seed", range(40))
def test_there_are_as_many_sizes_as_memories_have_bytes(seed: int) -> None:
    specs, alignment = random_specs(seed)
    for reserved in ([], [0], [0, 0], [0, 9, 0, 0], [0] * 9):
        algorithm = steeve.executorch.planner()
        found = len(algorithm(alignment, specs, module(*reserved), None, 0).bufsizes)
        assert found == greedy_sizes(specs), "a suite refuses algorithms that differ in that"


def test_a_used_planner_is_copied_and_pickled() -> None:
    algorithm = steeve.executorch.planner("best", budget="10nodes", capacity={1: 256})
    algorithm(16, [Spec(64, [0, 1]), Spec(64, [1, 2])], module(), None, 0)
    for again in (copy.copy(algorithm), copy.deepcopy(algorithm), pickle.loads(pickle.dumps(algorithm))):
        assert repr(again) == repr(algorithm) and again.__name__ == algorithm.__name__
        assert again.plans[1].offsets == algorithm.plans[1].offsets


def test_settings_are_checked_at_once_and_algorithms_have_names() -> None:
    with pytest.raises(steeve.InvalidArgument, match="strategy: unknown"):
        steeve.executorch.planner("quick")
    with pytest.raises(steeve.InvalidArgument, match="budget"):
        steeve.executorch.planner("fast", budget=1)
    names = {steeve.executorch.planner(strategy).__name__ for strategy in ["fast", "best", "best-fit"]}
    assert names == {"steeve", "steeve_best", "steeve_best_fit"}


def test_torch_is_not_imported() -> None:
    program = (
        "import sys, steeve.executorch\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'executorch')]\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
