"""The algorithm for ExecuTorch, on stand-ins for its specs: neither torch nor ExecuTorch is needed."""

from __future__ import annotations

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
    ("mem_id: expected 1 or more", lambda: [Spec(16, [0, 1], mem_id=0)]),
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
    with pytest.raises(steeve.DoesNotFit):
        steeve.executorch.planner(capacity={1: 255})(16, specs, module(0, 64), None, 64)


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
