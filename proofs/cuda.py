#!/usr/bin/env python3
"""The drop-in on a real GPU: llama.cpp with CUDA, models with random weights, logits to the bit, bytes and speed.

    python3 proofs/cuda.py fetch FOLDER
        llama.cpp's source, by way of cargo, into one small file there. The machine with the GPU needs neither cargo nor a network.
    python3 proofs/cuda.py run FOLDER LIBRARY [--seconds 540] [--only TEXT] [--cpu] [STEEVE_...=... ...]
        builds it there for the GPU that is there, makes the models, and runs each of them with LIBRARY (libsteeve_ggml.so)
        preloaded and without it, in turns. The settings are for the drop-in. What it builds is kept in FOLDER-build, with the
        output of all runs. Rounds of timed runs are added until the seconds are over. --only takes the models with this in their
        names, as in "qwen3moe" or "f16". --cpu tries the script itself without a GPU, with tiny models.

Needs Python with numpy, CMake, a C++ compiler and nvcc. Fails if logits differ though nothing is fused on either side, if a
memory is larger than with ggml's own allocator, or if something does not run.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

START = time.monotonic()
HERE = Path(__file__).resolve().parent
CRATE, VERSION = "llama-cpp-sys-2", "0.1.160"
# What is needed of the source to build ggml for processors and CUDA, and libllama.
PARTS = ["CMakeLists.txt", "LICENSE", "cmake", "include", "src", "vendor", "ggml/CMakeLists.txt", "ggml/cmake", "ggml/include", "ggml/src"]
BACKENDS = ["ggml-cpu", "ggml-cuda"]
MODELS = [(kind, type_) for type_ in ("f16", "q4_0") for kind in ("llama", "gemma3", "qwen3moe")]
# Micro-batch, flash attention, prompt: each prompt is longer than one micro-batch.
CASES = ["512/on/600", "512/off/600", "2048/on/2500", "2048/off/2500"]
# Experts are many, so they are smaller.
SHAPES = {"qwen3moe": ["hidden=4096"]}
SMALL = "layers=2 width=256 heads=4 kv=2 head=64 hidden=512 experts=8 used=2 words=1000".split()
SMALL_CASES = ["64/on/100", "64/off/100"]
SLOW = 0.98


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / "fetch"
    work.mkdir(exist_ok=True)
    (work / "Cargo.toml").write_text(
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "fetch.rs"\n[workspace]\n'
        f'[dependencies]\n{CRATE} = "={VERSION}"\n'
    )
    (work / "fetch.rs").touch()
    subprocess.run(["cargo", "vendor", "-q"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    source = work / "vendor" / CRATE / "llama.cpp"

    def wanted(info):
        path = Path(info.name).parts[1:]
        if path[:2] == ("ggml", "src") and len(path) > 2 and (source / "ggml/src" / path[2]).is_dir() and path[2] not in BACKENDS:
            return None
        info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
        return info

    target = folder / "llama.tar.xz"
    with tarfile.open(target, "w:xz") as file:
        for part in PARTS:
            file.add(source / part, f"llama/{part}", filter=wanted)
    shutil.rmtree(work)
    print(f"{target}: {target.stat().st_size} bytes")


def say(text):
    print(f"[{time.monotonic() - START:5.0f} s] {text}", flush=True)


def quietly(log, command, optional=False):
    with open(log, "ab") as file:
        done = subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    if done.returncode != 0 and not optional:
        sys.stderr.write(Path(log).read_text(errors="replace")[-4000:])
        sys.exit(f"cuda.py: {command[0]} has failed, see {log}")
    return done.returncode == 0


def build(folder, target, cpu):
    """libllama and the program that uses it, if they are not there."""
    source, made = target / "llama", target / "made"
    if not source.exists():
        with tarfile.open(folder / "llama.tar.xz") as file:
            file.extractall(target)
    configure = ["cmake", "-S", source, "-B", made, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON"]
    configure += [f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    if not cpu:
        capability = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"], check=True, capture_output=True, text=True
        ).stdout.splitlines()[0]
        say(capability)
        architecture = capability.rsplit(",", 1)[1].strip().replace(".", "") + "-real"
        configure += ["-DGGML_CUDA=ON", "-DGGML_CUDA_NCCL=OFF", f"-DCMAKE_CUDA_ARCHITECTURES={architecture}"]
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        configure += [f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DGGML_CUDA_COMPRESSION_MODE=none"]
    log = target / "build.log"
    if not quietly(log, configure, optional=True):
        # Where there is nothing to link the driver with.
        quietly(log, configure + ["-DGGML_CUDA_NO_VMM=ON"])
    quietly(log, ["cmake", "--build", made, "-j", str(os.cpu_count()), "--target", "llama"])
    libraries = made / "bin"
    compiler = ["c++", "-O2", "-std=c++17", f"-I{source}/include", f"-I{source}/ggml/include", f"-L{libraries}"]
    linker = [f"-Wl,-rpath,{libraries},-rpath-link,{libraries},--allow-shlib-undefined"]
    quietly(log, compiler + ["-o", target / "logits", HERE / "logits.cpp", "-lllama", "-lggml", "-lggml-base"] + linker)
    say("built")


def make_models(target, only, cpu):
    """Starts to make the models that are not there."""
    models, makers = {}, []
    for kind, type_ in MODELS:
        if only not in f"{kind} {type_}":
            continue
        path = target / f"{kind}-{type_}.gguf"
        models[f"{kind} {type_}"] = path
        if not path.exists():
            shape = SMALL if cpu else SHAPES.get(kind, [])
            makers.append(subprocess.Popen([sys.executable, HERE / "models.py", kind, type_, path] + shape))
    return models, makers


def is_host(memory):
    return memory.startswith("CPU") or memory.endswith("_Host")


class Run:
    """One run of the program: what it said of each case."""

    number = 0

    def __init__(self, target, label, model, cases, environment, words):
        Run.number += 1
        name = f"{Run.number:03}-{label}".replace(" ", "-")
        out, log = target / "output" / f"{name}.out", target / "output" / f"{name}.log"
        command = [target / "logits", model, ",".join(cases)] + words
        with open(out, "wb") as output, open(log, "wb") as errors:
            status = subprocess.run(command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL, env=environment, timeout=300)
        self.log = log.read_text(errors="replace")
        self.logits = {case: [] for case in cases}
        self.tokens, self.speed, self.memories = {}, {}, {case: {} for case in cases}
        self.wrong = f"exit status {status.returncode}, see {log}" if status.returncode != 0 else ""
        for line in out.read_text().splitlines():
            case, what, *rest = line.split() + ["", ""]
            rest = [it for it in rest if it]
            if case not in self.logits:
                continue
            if what == "speed":
                self.speed[case] = [float(it) for it in rest]
            elif what == "tokens":
                self.logits[case].append(("tokens", rest[0]))
                self.tokens[case] = rest[1:]
            else:
                self.logits[case].append((what, *rest))
        case = None
        for line in self.log.splitlines():
            if line.startswith("case: "):
                case = line[6:]
            found = re.match(r"~llama_context: +(.*) compute buffer size is +([0-9.]+) MiB", line)
            if found:
                self.memories[case][found[1]] = float(found[2])


def run(folder, library, seconds, only, cpu, settings):
    target = Path(f"{folder}-build")
    shutil.rmtree(target / "output", ignore_errors=True)
    (target / "output").mkdir(parents=True)
    models, makers = make_models(target, only, cpu)
    build(folder, target, cpu)
    if any(maker.wait() != 0 for maker in makers):
        sys.exit("cuda.py: no models")
    say("models made")
    cases = SMALL_CASES if cpu else CASES
    plain = {key: value for key, value in os.environ.items() if not key.startswith("STEEVE_") and key != "LD_PRELOAD"}
    plain["GGML_NO_BACKTRACE"] = "1"
    ours = plain | {"LD_PRELOAD": str(library)} | settings
    failures = []

    def pair(model, words, more={}, watch={}, turned=False):
        """Both sides, ggml's first in what is answered. If turned, ours runs first."""
        both = {}
        for side, environment in [("ggml", plain), ("steeve", ours | watch)][:: -1 if turned else 1]:
            both[side] = Run(target, f"{side} {model}", models[model], cases, environment | more, words)
            if both[side].wrong:
                failures.append(f"{model}: {side}: {both[side].wrong}")
        return both["ggml"], both["steeve"]

    # First the logits, with every plan replayed; where they differ, again with nothing fused.
    first, unfused = {}, {}
    for model in models:
        first[model] = pair(model, ["tokens=32"], watch={"STEEVE_LOG": "1", "STEEVE_CHECK": "1"})
        lines = [line for line in first[model][1].log.splitlines() if line.startswith("steeve: ")]
        odd = [line for line in lines if not re.search(r": ggml \d+, steeve \d+, .*replayed$", line)]
        if not lines or odd:
            failures.append(f"{model}: {odd[0] if odd else 'the drop-in was not active'}")
        if first[model][0].logits != first[model][1].logits:
            unfused[model] = pair(model, ["tokens=32"], more={"GGML_CUDA_DISABLE_FUSION": "1"})
            if unfused[model][0].logits != unfused[model][1].logits:
                failures.append(f"{model}: other logits, though nothing is fused")
        sizes = [", ".join(f"{name} {size:.2f}" for case in cases for name, size in it.memories[case].items()) for it in first[model]]
        say(f"{model}: logits {'differ' if model in unfused else 'identical'}; MiB: {sizes[0]}; with the drop-in: {sizes[1]}")
    # Then rounds of timed runs, in turns.
    rounds, took = [], 0.0
    while not rounds or time.monotonic() - START + 1.1 * took < seconds:
        begin = time.monotonic()
        words = ["batches=no", "tokens=64", "repeat=8"]
        rounds.append({model: pair(model, words, turned=len(rounds) % 2 == 1) for model in models})
        took = time.monotonic() - begin
        say(f"round {len(rounds)} of timed runs")

    def row(*columns):
        widths = (-14, -13, 22, 22, -8, -9, -6, 26, 24)
        print("  ".join(f"{it:{'<' if width < 0 else '>'}{abs(width)}}" for it, width in zip(columns, widths)).rstrip())

    print()
    row("model", "case", "device, MiB", "host, MiB", "logits", "unfused", "tokens", "prompt, t/s", "tokens, t/s")
    for model in models:
        for case in cases:
            a, b = first[model]
            if a.wrong or b.wrong:
                continue
            if a.memories[case].keys() != b.memories[case].keys() or not a.memories[case]:
                failures.append(f"{model} {case}: other memories")
                continue
            for name, size in b.memories[case].items():
                if size > a.memories[case][name]:
                    failures.append(f"{model} {case}: {name} is larger")
            sizes = []
            for host in False, True:
                pairs = [sum(size for name, size in it.memories[case].items() if is_host(name) == host) for it in (a, b)]
                sizes.append(f"{pairs[0]:.2f} {pairs[1]:.2f} {pairs[1] / pairs[0]:.3f}" if pairs[0] else "")
            speeds = []
            for what in 0, 1:
                pairs = [statistics.median(it[model][side].speed.get(case, [0, 0])[what] for it in rounds) for side in (0, 1)]
                ratio = pairs[1] / pairs[0] if pairs[0] else 0
                speeds.append(f"{pairs[0]:.0f} {pairs[1]:.0f} {ratio:.3f}{'' if ratio >= SLOW else ' SLOW'}")
            logits = "same" if a.logits[case] == b.logits[case] else "rounding"
            nothing = ""
            if model in unfused:
                nothing = "same" if unfused[model][0].logits[case] == unfused[model][1].logits[case] else "DIFFERENT"
            tokens = "same" if a.tokens[case] == b.tokens[case] else "other"
            row(model, case, *sizes, logits, nothing, tokens, *speeds)
            for side, name in enumerate(("ggml", "steeve")):
                prompts = [it[model][side].logits[case][:1] for it in rounds] + [first[model][side].logits[case][-2:-1]]
                if any(it != prompts[0] for it in prompts):
                    print(f"    {name}: not the same logits in each run")
    print(f"{len(rounds)} rounds of timed runs. Each: ggml's, steeve's, and steeve's over ggml's.\n")
    for failure in dict.fromkeys(failures):
        print(f"FAILED: {failure}")
    say("done")
    sys.exit(bool(failures))


def main():
    words = sys.argv[1:]
    seconds, only, cpu, settings, rest = 540.0, "", False, {}, []
    while words:
        word = words.pop(0)
        if word == "--seconds" and words:
            seconds = float(words.pop(0))
        elif word == "--only" and words:
            only = words.pop(0)
        elif word == "--cpu":
            cpu = True
        elif word.startswith("STEEVE_") and "=" in word:
            settings.update([word.split("=", 1)])
        else:
            rest.append(word)
    if len(rest) == 2 and rest[0] == "fetch":
        fetch(Path(rest[1]))
    elif len(rest) == 3 and rest[0] == "run":
        run(Path(rest[1]).resolve(), Path(rest[2]).resolve(strict=True), seconds, only, cpu, settings)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
