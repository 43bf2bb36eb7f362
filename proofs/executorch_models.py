"""Models exported with ExecuTorch, planned by its own greedy algorithm and by steeve: the bytes of each, and whether the runtime
computes the same from both files.

    python -m venv v
    v/bin/pip install executorch==1.5.1 torch torchvision numpy   # about 9 GB with torch's CUDA packages
    v/bin/pip install path/to/steeve-0.1.0-*.whl
    v/bin/python proofs/executorch_models.py [NAME ...]                   # all models without a name

A line for each model; the exit status is 1 if an output differs or a plan is larger than ExecuTorch's.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable

warnings.filterwarnings("ignore")

import torch
import torchvision.models
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime, Verification

import steeve.executorch

INPUTS = 3


class Views(torch.nn.Module):
    """Slices, reshapes, transposes and in-place additions: what becomes views, or is written into a part of something."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).view(-1, 8, 8)
        a, b = y.split(4, dim=1)
        z = torch.cat([a.transpose(1, 2).reshape(-1, 32), b.flatten(1)], dim=1)
        z = z.unsqueeze(1).expand(-1, 2, -1).reshape(-1, 128)
        return torch.relu(z[:, 16:80]) + x.squeeze(0).view_as(x)


class Loop(torch.nn.Module):
    """A branch, whose subgraphs have plans of their own in the same memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def larger(y: torch.Tensor) -> torch.Tensor:
            return torch.relu(y * 2.0 + 1.0) - y

        def smaller(y: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(y - 1.0) * y

        z = torch.cond(x.sum() > 0, larger, smaller, [x])
        return torch.relu(z @ z.transpose(0, 1)) + z.sum()


class Counter(torch.nn.Module):
    """A buffer that each run changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(1, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(torch.relu(x))
        return torch.sigmoid(self.state * x) + self.state


class Shared(torch.nn.Module):
    """Activations, which `share_activations` writes over what they are computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


def share_activations(graph_module: torch.fx.GraphModule) -> int:
    """Ask ExecuTorch to keep each result of a `relu` in the memory of its source (`storage_base`). Return how many."""
    shared = 0
    for node in graph_module.graph.nodes:
        if "relu" in str(node.target) and len(node.args[0].users) == 1:
            node.meta["_share_alloc_with_arg_idx"] = 0
            shared += 1
    return shared


def encoder() -> torch.nn.Module:
    """Return a small transformer."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, dim_feedforward=256, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def picture() -> torch.Tensor:
    """Return a random picture."""
    return torch.randn(1, 3, 224, 224)


Made = Callable[[], torch.nn.Module]
MODELS: dict[str, tuple[Made, Callable[[], torch.Tensor]]] = {
    name: (lambda name=name: getattr(torchvision.models, name)(weights=None), picture)
    for name in [
        "resnet50",
        "mobilenet_v3_small",
        "densenet121",
        "shufflenet_v2_x1_0",
        "squeezenet1_1",
        "mnasnet0_5",
        "googlenet",
        "efficientnet_b0",
        "regnet_y_400mf",
    ]
} | {
    "views": (Views, lambda: torch.randn(4, 64)),
    "branch": (Loop, lambda: torch.randn(32, 32)),
    "buffer": (Counter, lambda: torch.randn(1, 64)),
    "shared": (Shared, lambda: torch.randn(8, 64)),
    "transformer": (encoder, lambda: torch.randn(1, 48, 64)),
}


def exported(module: torch.nn.Module, example: torch.Tensor, algorithms: list) -> tuple[bytes, int]:
    """Return the program file, and the bytes of its planned memories."""
    edge = to_edge(torch.export.export(module, (example,)), compile_config=EdgeCompileConfig(_check_ir_validity=False))
    if isinstance(module, Shared):
        share_activations(edge.exported_program().graph_module)
    planning = MemoryPlanningPass(MemoryPlanningAlgorithmSuite(algorithms))
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    sizes = program.executorch_program.execution_plan[0].non_const_buffer_sizes
    return program.buffer, sum(sizes)


def outputs(program: bytes, inputs: list[torch.Tensor]) -> list[bytes]:
    """Run a program and return the bytes that it computes."""
    method = Runtime.get().load_program(program, verification=Verification.Minimal).load_method("forward")
    computed = []
    for tensor in inputs:
        computed += [result.clone().numpy().tobytes() for result in method.execute((tensor,))]
    return computed


class CountingPlanner(steeve.executorch.Planner):
    """Counts the specs that are backed by another one's memory."""

    views = 0

    def __call__(self, alignment, specs, *rest):
        """Count, and plan."""
        specs = list(specs)
        self.views += sum(spec.storage_base is not None for spec in specs)
        return super().__call__(alignment, specs, *rest)


def prove(name: str) -> bool:
    """Compare the two plans of a model, and print what was found."""
    torch.manual_seed(1)
    make, random_input = MODELS[name]
    module = make().eval()
    inputs = [random_input() for _ in range(INPUTS)]
    theirs, greedy_bytes = exported(module, inputs[0], [greedy])
    algorithm = CountingPlanner()
    start = time.perf_counter()
    ours, bytes_ = exported(module, inputs[0], [algorithm])
    seconds = time.perf_counter() - start
    expected, computed = outputs(theirs, inputs), outputs(ours, inputs)
    same = len(expected) >= INPUTS and expected == computed
    planning = sum(plan.seconds for plan in algorithm.plans.values())
    optimal = all(plan.optimal for plan in algorithm.plans.values())
    print(
        f"{name:20} greedy {greedy_bytes:>11,}  steeve {bytes_:>11,}  {bytes_ / greedy_bytes:.3f}"
        f"  {'optimal' if optimal else 'above its bound'}  {planning * 1e3:.1f} ms of {seconds:.1f} s"
        f"  {algorithm.views} views  outputs {'identical' if same else 'DIFFER'}",
        flush=True,
    )
    return same and bytes_ <= greedy_bytes


def main() -> int:
    """Prove the models that are named, or all."""
    parser = argparse.ArgumentParser(description="Compare ExecuTorch's plans of models with those of steeve.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MODELS)}")
    names = parser.parse_args().names or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"unknown model: {unknown[0]}: expected one of {', '.join(MODELS)}")
    proven = [prove(name) for name in names]
    print(f"{sum(proven)} of {len(proven)} models: identical outputs, in no more memory")
    return 0 if all(proven) else 1


if __name__ == "__main__":
    sys.exit(main())
