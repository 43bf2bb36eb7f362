"""Measures the example `generate` beside llama.cpp: tokens per second, peak resident memory and compute memory.

    python3 proofs/speed.py GENERATE MODEL [--threads 1 2] [--runs 5] [--prompt 512] [--tokens 64] [--context 4096]

GENERATE is the built example, MODEL a GGUF file; llama.cpp is the one in the package xllamacpp, in a process of its own for each run, with
flash attention, after a warm-up. Runs of both are interleaved, and medians are compared, so that whatever else the machine does slows
both down. Prints a line for each number of threads:

    2 threads: prompt OURS/THEIRS tokens/s = RATIO, tokens OURS/THEIRS = RATIO, peak OURS/THEIRS MB = RATIO, compute OURS/THEIRS MB = RATIO

The peak of llama.cpp is that of a Python process with it inside, less what such a process takes before a model is loaded.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys


def peak() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def resident() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))


def theirs(model: str, threads: int, context: int, prompt: list[int], count: int) -> None:
    """One run of llama.cpp, as a line of JSON. Its compute memory is in what it logs."""
    import xllamacpp

    before = resident()
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = context, 512, 512, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.fit_params, params.verbosity, params.n_gpu_layers = False, 4, 0
    # Prompts that are kept for later are no part of what a model takes.
    params.cache_ram_mib = params.n_ctx_checkpoints = 0
    server = xllamacpp.Server(params)
    wanted = {"prompt": prompt, "n_predict": count, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    times = server.handle_completions(wanted)["timings"]
    figures = {"prompt": times["prompt_per_second"], "tokens": times["predicted_per_second"], "peak": peak() - before}
    print(json.dumps(figures), flush=True)


def run_theirs(model: str, threads: int, context: int, prompt: list[int], count: int) -> dict:
    arguments = json.dumps([model, threads, context, prompt, count])
    done = subprocess.run([sys.executable, __file__, "--theirs", arguments], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"llama.cpp: {done.stderr[-500:]}")
    figures = json.loads(lines[-1])
    buffers = re.findall(r"compute buffer size = +([0-9.]+) MiB", done.stdout + done.stderr)
    figures["compute"] = sum(map(float, buffers)) * (1 << 20)
    return figures


def run_ours(program: str, model: str, threads: int, context: int, prompt: list[int], count: int) -> dict:
    command = [program, model, "--json", "--ignore-end", "--threads", str(threads), "--context", str(context), "--batch", "512"]
    command += ["-n", str(count), "--tokens", ",".join(map(str, prompt))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"generate: {done.stderr.strip()}")
    figures = json.loads(done.stdout.splitlines()[-1])
    return {
        "prompt": figures["prompt_per_second"],
        "tokens": figures["tokens_per_second"],
        "peak": figures["peak_resident"],
        "compute": sum(device["compute"] for device in figures["devices"]),
    }


def main() -> None:
    if sys.argv[1:2] == ["--theirs"]:
        theirs(*json.loads(sys.argv[2]))
        return
    options = argparse.ArgumentParser()
    options.add_argument("generate")
    options.add_argument("model")
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--prompt", type=int, default=512)
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--context", type=int, default=4096)
    asked = options.parse_args()
    choose = random.Random(1)
    prompt = [choose.randrange(100, 10_000) for _ in range(asked.prompt)]
    for threads in asked.threads:
        ours, others = [], []
        for _ in range(asked.runs):
            ours.append(run_ours(asked.generate, asked.model, threads, asked.context, prompt, asked.tokens))
            others.append(run_theirs(asked.model, threads, asked.context, prompt, asked.tokens))
        parts = []
        for name, unit, scale in (("prompt", "tokens/s", 1), ("tokens", "tokens/s", 1), ("peak", "MB", 1e6), ("compute", "MB", 1e6)):
            one, other = (statistics.median(run[name] for run in runs) / scale for runs in (ours, others))
            ratio = f"{one / other:.3f}" if other else "unknown"
            parts.append(f"{name} {one:.1f}/{other:.1f} {unit} = {ratio}")
        print(f"{threads} thread{'s' if threads > 1 else ''}: {', '.join(parts)}")


if __name__ == "__main__":
    main()
