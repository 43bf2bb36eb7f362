"""Measures the example `generate` beside llama.cpp: tokens per second, peak resident memory and compute memory.

    python3 proofs/speed.py GENERATE MODEL [--threads 1 2] [--runs 5] [--prompt 512] [--tokens 64] [--context 4096] [--cpu-time]

GENERATE is the built example, MODEL a GGUF file; llama.cpp is the one in the package xllamacpp, in a process of its own for each run, with
flash attention, after a warm-up. Runs of both are interleaved, and medians are compared, so that whatever else the machine does slows
both down. Prints a line for each number of threads:

    2 threads: prompt OURS/THEIRS tokens/s = RATIO, tokens OURS/THEIRS = RATIO, peak OURS/THEIRS MB = RATIO, compute OURS/THEIRS MB = RATIO

With --cpu-time the time of the processor is measured instead, on one thread, which means something on a machine that others use too: of the
prompt and a token, and of a token from what so many more take.

    processor: prompt OURS/THEIRS s, ratio of speeds RATIO, a token OURS/THEIRS ms, RATIO

The peak of llama.cpp is that of a Python process with it inside, less what such a process takes before a model is loaded.
"""

import argparse
import json
import random
import re
import resource
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
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    times = server.handle_completions(wanted)["timings"]
    spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
    figures = {"prompt": times["prompt_per_second"], "tokens": times["predicted_per_second"], "peak": peak() - before, "spent": spent}
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


def run_ours(program: str, model: str, threads: int, context: int, prompt: list[int], count: int, warm: bool = True) -> dict:
    command = [program, model, "--json", "--ignore-end", "--threads", str(threads), "--context", str(context), "--batch", "512"]
    command += ["-n", str(count), "--tokens", ",".join(map(str, prompt))] + (["--warm-up"] if warm else [])
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"generate: {done.stderr.strip()}")
    figures = json.loads(done.stdout.splitlines()[-1])
    return {
        "prompt": figures["prompt_per_second"],
        "tokens": figures["tokens_per_second"],
        "peak": figures["peak_resident"],
        "spent": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before,
        "compute": sum(device["compute"] for device in figures["devices"]),
    }


def processor_time(asked: argparse.Namespace, prompt: list[int]) -> str:
    """What a prompt and a token take of the processor. Ours is all of the process, loading and planning included."""
    rows = []
    for _ in range(asked.runs):
        row = []
        for run in (lambda count: run_ours(asked.generate, asked.model, 1, asked.context, prompt, count, warm=False), lambda count: run_theirs(asked.model, 1, asked.context, prompt, count)):
            short, long = run(1)["spent"], run(1 + asked.tokens)["spent"]
            row += [short, (long - short) / asked.tokens * 1e3]
        rows.append(row)
    prompt_ours, token_ours, prompt_theirs, token_theirs = (statistics.median(column) for column in zip(*rows))
    return (
        f"processor: prompt {prompt_ours:.2f}/{prompt_theirs:.2f} s, ratio of speeds {prompt_theirs / prompt_ours:.3f}, "
        f"a token {token_ours:.2f}/{token_theirs:.2f} ms, {token_theirs / token_ours:.3f}"
    )


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
    options.add_argument("--cpu-time", action="store_true")
    asked = options.parse_args()
    choose = random.Random(1)
    prompt = [choose.randrange(100, 10_000) for _ in range(asked.prompt)]
    if asked.cpu_time:
        print(processor_time(asked, prompt))
        return
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
