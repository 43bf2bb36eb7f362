#!/usr/bin/env python3
"""The example `generate` on a real GPU beside llama.cpp with CUDA: models with random weights, tokens, bytes and speed.

    python3 proofs/cuda.py fetch FOLDER
        llama.cpp's source in one file, where there are cargo and a network.
    cargo build --release -p steeve --features cuda --example generate
    python3 proofs/generate_cuda.py FOLDER GENERATE [--seconds 540] [--only TEXT] [--prompt 600] [--tokens 64] [--cpu]
        builds llama.cpp where the GPU is, makes the models, and runs each with both, in turns, until the seconds are over. What it
        builds is kept in FOLDER-build, where proofs/cuda.py has it too. --cpu tries the script itself without a GPU, with tiny models.

Prints a line for each model and number of layers on the GPU: how many of the tokens are llama.cpp's before the first that is not, compute memory
and the tokens per second of prompt and answer, ours and llama.cpp's, with ratios of medians.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import cuda

CONTEXT, BATCH = 4096, 512


def prompt_of(words: int, length: int) -> list[int]:
    """The prompt of proofs/logits.cpp for a model without a vocabulary."""
    tokens, state = [], 1
    for _ in range(length):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        tokens.append((state >> 8) % words)
    return tokens


def theirs(target: Path, model: Path, layers: int, length: int, count: int) -> dict:
    case = f"{BATCH}/on/{length}"
    command = [target / "logits", model, case, f"layers={layers}", f"context={CONTEXT}", f"tokens={count}", "batches=no", "repeat=4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = {}
    for line in done.stdout.splitlines():
        name, what, *rest = line.split()
        if what == "tokens":
            found["said"] = [int(token) for token in rest[1:]]
        elif what == "speed":
            found["prompt"], found["tokens"] = map(float, rest)
    sizes = re.findall(r"~llama_context: +(.*) compute buffer size is +([0-9.]+) MiB", done.stderr)
    found["compute"] = {name: float(size) for name, size in sizes}
    if done.returncode != 0 or "prompt" not in found:
        sys.exit(f"generate_cuda.py: llama.cpp: {done.stderr[-1000:]}")
    return found


def ours(program: Path, model: Path, layers: int, prompt: list[int], count: int, cpu: bool) -> dict:
    command = [program, model, "--json", "--ignore-end", "--warm-up", "--context", str(CONTEXT), "--batch", str(BATCH)]
    # One more: the last one is not computed with.
    command += ["-n", str(count + 1), "--tokens", ",".join(map(str, prompt))]
    command += [] if cpu else ["--device", "cuda:0", "--layers-on-gpu", str(layers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"generate_cuda.py: generate: {done.stderr[-1000:]}")
    *tokens, figures = map(json.loads, done.stdout.splitlines())
    return {
        "said": [it["token"] for it in tokens][:count],
        "prompt": figures["prompt_per_second"],
        "tokens": figures["tokens_per_second"],
        "compute": {it["device"]: it["compute"] / (1 << 20) for it in figures["devices"]},
    }


def words_of(model: Path) -> int:
    """The size of the vocabulary, from the line of proofs/models.py."""
    data = model.open("rb").read(4096)
    key = b".vocab_size"
    return int.from_bytes(data[data.index(key) + len(key) + 4 :][:4], "little")


def agreement(one: list[int], other: list[int]) -> str:
    same = next((at for at, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), len(one))
    return f"{same} of {len(one)}"


def line(pair: tuple[list[dict], list[dict]]) -> str:
    """What the runs of both say, by their medians."""
    mine, yours = pair
    speeds = []
    for what in ("prompt", "tokens"):
        one, other = (statistics.median(run[what] for run in side) for side in pair)
        speeds.append(f"{what} {one:.0f}/{other:.0f} tokens/s = {one / other:.3f}")
    sizes = [" + ".join(f"{device} {size:.2f}" for device, size in side[0]["compute"].items()) for side in pair]
    sums = [sum(side[0]["compute"].values()) for side in pair]
    ratio = f"{sums[0] / sums[1]:.3f}" if sums[1] else "unknown"
    told = agreement(mine[0]["said"], yours[0]["said"])
    return f"{told} tokens equal, MiB {sizes[0]} / {sizes[1]} = {ratio}, {', '.join(speeds)}"


def main() -> None:
    words, options = sys.argv[1:], {"--seconds": "540", "--only": "", "--prompt": "600", "--tokens": "64"}
    rest, cpu = [], False
    while words:
        word = words.pop(0)
        if word in options and words:
            options[word] = words.pop(0)
        elif word == "--cpu":
            cpu = True
        else:
            rest.append(word)
    if len(rest) != 2:
        sys.exit(__doc__)
    folder, program = Path(rest[0]).resolve(), Path(rest[1]).resolve(strict=True)
    length, count = int(options["--prompt"]), int(options["--tokens"])
    target = Path(f"{folder}-build")
    target.mkdir(parents=True, exist_ok=True)
    models, makers = cuda.make_models(target, options["--only"], cpu)
    cuda.build(folder, target, cpu)
    if any(maker.wait() != 0 for maker in makers):
        sys.exit("generate_cuda.py: no models")
    cuda.say("models made")
    # All layers on the GPU, and the last half of them. llama.cpp counts the output as one more.
    cases = [(name, layers) for name in models for layers in ([99] if cpu else [99, 4])]
    runs: dict = {case: ([], []) for case in cases}
    rounds, took = 0, 0.0
    while rounds == 0 or time.monotonic() - cuda.START + 1.1 * took < float(options["--seconds"]):
        begin = time.monotonic()
        for name, layers in cases:
            prompt = prompt_of(words_of(models[name]), length)
            mine = ours(program, models[name], layers, prompt, count, cpu)
            yours = theirs(target, models[name], layers, length, count)
            runs[name, layers][0].append(mine)
            runs[name, layers][1].append(yours)
            if rounds == 0:
                # What is known already, should time run out.
                cuda.say(f"{name}, {layers} layers: {line(runs[name, layers])}")
        rounds, took = rounds + 1, time.monotonic() - begin
        cuda.say(f"round {rounds}")
    for (name, layers), pair in runs.items():
        print(f"{name}, {layers} layers: {line(pair)}")
    cuda.say(f"{rounds} rounds")


if __name__ == "__main__":
    main()
