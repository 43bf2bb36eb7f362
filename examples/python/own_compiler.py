"""A small compiler: it exports a network as a list of calls with offsets into one arena, planned by steeve.

pip install ./python
python examples/python/own_compiler.py [--capacity BYTES] [-o plan.html]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import steeve


@dataclass
class Call:
    """A call of a kernel, as a compiler has it before memory is planned."""

    kernel: str
    result: str
    size: int
    sources: list[str]
    # Kernels that work element by element may write over their source.
    in_place: bool = False


def network(width: int, layers: int) -> tuple[list[Call], dict[str, int]]:
    """Return the calls of a network with skip connections, and the bytes of its weights."""
    calls, weights, x = [], {}, "image"
    for layer in range(layers):
        weights[f"w{layer}"] = 9 * width * 4
        calls += [
            Call("conv", f"conv{layer}", width * 1024, [x, f"w{layer}"]),
            Call("relu", f"relu{layer}", width * 1024, [f"conv{layer}"], in_place=True),
            Call("pool", f"pool{layer}", width * 256, [f"relu{layer}"]),
            Call("resize", f"resize{layer}", width * 1024, [f"pool{layer}"]),
            Call("add", f"add{layer}", width * 1024, [f"resize{layer}", f"relu{layer}"], in_place=True),
        ]
        x = f"add{layer}"
    return calls, weights


def graph_of(calls: list[Call], weights: dict[str, int], image: int) -> steeve.Graph:
    """Return the calls as the planner sees them."""
    builder = steeve.GraphBuilder(align=64, memory="arena")
    builder.input("image", image)
    for name, size in weights.items():
        builder.external(name, size)
    for call in calls:
        overwrites = call.sources if call.in_place else []
        builder.node(call.result, call.size, call.sources, op=call.kernel, overwrites=overwrites)
    builder.output(calls[-1].result)
    return builder.build("network")


def main() -> int:
    """Plan the network, and print its calls with offsets."""
    parser = argparse.ArgumentParser(description="Plan a small network and print it as calls with offsets.")
    parser.add_argument("--capacity", type=int, help="the bytes of the arena")
    parser.add_argument("-o", "--out", help="where to draw the plan: .html or .svg")
    arguments = parser.parse_args()
    calls, weights = network(width=16, layers=4)
    graph = graph_of(calls, weights, image=3 * 1024)
    try:
        plan = graph.plan(capacity=arguments.capacity)
    except steeve.DoesNotFit as error:
        print(error, file=sys.stderr)
        for alive in error.alive:
            print(f"  {alive.size:>8} bytes  {alive.name}  {alive.why}", file=sys.stderr)
        return 1
    print(f"static char arena[{plan.peak}];  // no plan takes fewer than {plan.bound}")
    for call in calls:
        operands = [f"arena + {place.offset}" if (place := plan.place(name)) else name for name in call.sources]
        result = plan.place(call.result)
        assert result is not None
        print(f"{call.kernel}({', '.join([f'arena + {result.offset}', *operands])});  // {call.result}")
    if arguments.out:
        plan.save(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
