"""Says what the example `generate` says of a model beside what llama.cpp says of it.

    python3 proofs/words.py GENERATE MODEL [--tokens 64] [--prompts 10] [--exact] [--own] [--plan STEEVE] [--small]

GENERATE is the built example, MODEL a GGUF file; llama.cpp is the one in the package xllamacpp. Both run on one thread, with flash
attention and caches of 16 bits. For each of ten prompts llama.cpp's first tokens (greedy) are compared with ours, and the logarithms of the
probabilities of its likeliest five with ours after the same text. Where a token differs, its two best must have been closer than the
two programs are there.

Quantised weights are multiplied by activations that are rounded as well, which each program does in its own way. So with --exact the same
model with weights of 32 bits (made here, in a temporary folder) is the truth: there both must agree to 0.03, and with quantised weights
we may be at most 1.1 times as far from it as llama.cpp is, on average.

With --own llama.cpp is compared with itself as well, with flash attention and without: how far results are apart that nobody holds for
different.

With --plan the command `steeve` must say of the model, from its header, exactly the bytes that the example then takes.

Prints one line: the tokens that were compared, how many prompts were equal to the end, the mean and the largest distance. Fails with
the reason if the programs disagree. --small says that the model is random and tiny: prompts are numbers of tokens then.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "To make a good cup of tea, you should first",
    "The difference between a stack and a queue is that",
    "Water boils at a lower temperature on a mountain because",
    "def fibonacci(n):\n    ",
    "In 1969, the first people landed on the Moon. The",
    "Dear Ms. Miller,\n\nthank you for your letter of",
    "The three most important rules of writing are",
    "If x + 3 = 10, then x is",
]

# A token whose scores are no further apart than this is chosen by rounding.
EXACT = 0.03
RATIO = 1.1


class Theirs:
    """llama.cpp on one thread, in this process."""

    def __init__(self, model: str, context: int, flash_attention: str = "ENABLED") -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = model
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = context, 512, 512, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.flash_attn_type = xllamacpp.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{flash_attention}"]
        params.warmup, params.fit_params, params.verbosity, params.n_gpu_layers = False, False, 0, 0
        self.server = xllamacpp.Server(params)

    def tokenize(self, text: str) -> list[int]:
        body = json.dumps({"content": text, "add_special": True}).encode()
        request = urllib.request.Request(self.server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]

    def complete(self, prompt: list[int], count: int, keep: bool = False) -> list[dict]:
        """The tokens that follow, each with the likeliest five and the logarithms of their probabilities."""
        wanted = {"prompt": prompt, "n_predict": count, "temperature": 0, "n_probs": 5, "cache_prompt": keep}
        answer = self.server.handle_completions(wanted)
        if "choices" not in answer:
            sys.exit(f"llama.cpp: {answer}")
        content = (answer["choices"][0].get("logprobs") or {}).get("content") or []
        return [{"token": it["id"], "likeliest": {top["id"]: top["logprob"] for top in it["top_logprobs"]}} for it in content]

    def judge(self, prompt: list[int], answer: list[int]) -> list[dict]:
        """What is likeliest at each token of a given answer."""
        return [self.complete(prompt + answer[:index], 1, keep=True)[0] for index in range(len(answer))]


class Ours:
    """The example, a process for each text."""

    def __init__(self, program: str, model: str, context: int) -> None:
        self.command = [program, model, "--json", "--threads", "1", "--context", str(context), "--batch", "512"]

    def run(self, *arguments: str) -> list[dict]:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"generate: {done.stderr.strip()}")
        *tokens, self.figures = map(json.loads, done.stdout.splitlines())
        return [{"token": it["token"], "likeliest": dict(it["likeliest"])} for it in tokens]

    def complete(self, prompt: list[str], count: int) -> list[dict]:
        return self.run(*prompt, "-n", str(count))

    def judge(self, prompt: list[str], answer: list[int]) -> list[dict]:
        return self.run(*prompt, "--answer", ",".join(map(str, answer)))


def distances(one: list[dict], other: list[dict]) -> list[list[float]]:
    """How far both are apart at each token: of those that both list."""
    apart = []
    for mine, yours in zip(one, other, strict=True):
        both = mine["likeliest"].keys() & yours["likeliest"].keys()
        if len(both) < 3:
            sys.exit(f"the likeliest five have only {len(both)} in common: {mine} and {yours}")
        apart.append([abs(mine["likeliest"][token] - yours["likeliest"][token]) for token in both])
    return apart


def margin(step: dict) -> float:
    first, second, *_ = sorted(step["likeliest"].values(), reverse=True)
    return first - second


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def flat(rows: list[list[float]]) -> list[float]:
    return [number for row in rows for number in row]


def is_byte_pairs(model: str) -> bool:
    return field(model, "tokenizer.ggml.model") == "gpt2"


def field(model: str, key: str) -> object:
    import gguf

    found = gguf.GGUFReader(model).get_field(key)
    return found.contents() if found else None


def check_plan(steeve: str, model: str, context: int, taken: list[dict]) -> None:
    """What the header says is what was taken."""
    command = [steeve, "plan", model, "--json", "--context", str(context), "--batch", "512"]
    planned = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["devices"]
    said = [(device["device"], device["weights"] + device["caches"], device["compute"]) for device in planned]
    took = [(device["device"], device["placed"], device["compute"]) for device in taken]
    if said != took:
        sys.exit(f"steeve plan says {said}, taken were {took}")


def without_quantising(model: str, folder: str) -> str:
    """The same model with weights of 32 bits."""
    import gguf
    import numpy

    reader = gguf.GGUFReader(model)
    path = os.path.join(folder, "exact.gguf")
    writer = gguf.GGUFWriter(path, reader.get_field("general.architecture").contents())
    for key, value in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind, items = value.types[0], value.types[-1]
        writer.add_key_value(key, value.contents(), kind, sub_type=items if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, numpy.ascontiguousarray(data, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("generate")
    options.add_argument("model")
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--prompts", type=int, default=len(PROMPTS))
    options.add_argument("--context", type=int, default=1024)
    options.add_argument("--exact", action="store_true")
    options.add_argument("--own", action="store_true")
    options.add_argument("--small", action="store_true")
    options.add_argument("--plan", metavar="STEEVE")
    asked = options.parse_args()
    theirs, ours = Theirs(asked.model, asked.context), Ours(asked.generate, asked.model, asked.context)
    vocabulary = None
    prompts: list[tuple[list[int], list[str]]] = []
    if asked.small:
        vocabulary = int(field(asked.model, "proof.tokens"))
        choose = random.Random(1)
        for number in range(asked.prompts):
            length = [1, 3, 17, 40, 70, 130, 260, 300, 513, 600][number % 10]
            tokens = [choose.randrange(vocabulary) for _ in range(length)]
            prompts.append((tokens, ["--tokens", ",".join(map(str, tokens))]))
    else:
        for text in PROMPTS[: asked.prompts]:
            tokens = theirs.tokenize(text)
            given = ["-p", text] if is_byte_pairs(asked.model) else ["--tokens", ",".join(map(str, tokens))]
            prompts.append((tokens, given))
    texts, apart, equal, by_rounding, compared = [], [], 0, 0, 0
    for tokens, given in prompts:
        said = theirs.complete(tokens, asked.tokens)
        answer = [step["token"] for step in said]
        mine = [step["token"] for step in ours.complete(given, asked.tokens)]
        if ours.figures["prompt_tokens"] != len(tokens):
            sys.exit(f"the prompt has {len(tokens)} tokens for llama.cpp, {ours.figures['prompt_tokens']} for us")
        judged = ours.judge(given, answer)
        rows = distances(judged, said)
        compared += len(answer)
        different = next((at for at, (yours, ours_) in enumerate(zip(answer, mine)) if yours != ours_), None)
        if different is None:
            # A token that ends the text is in their answer, and not in ours.
            if len(mine) != len(answer) - (len(answer) < asked.tokens):
                sys.exit(f"{given[1][:40]!r}: the text ends after {len(mine)} tokens, llama.cpp's after {len(answer)}")
            equal += 1
        else:
            by_rounding += 1
            if margin(said[different]) > 2 * max(rows[different]):
                sys.exit(
                    f"{given[1][:40]!r}: token {different} is {mine[different]}, llama.cpp's {answer[different]}: "
                    f"its two best are {margin(said[different]):.4f} apart, the programs {max(rows[different]):.4f}"
                )
        apart += rows
        texts.append((tokens, given, answer, said, judged))
    if asked.plan:
        check_plan(asked.plan, asked.model, asked.context, ours.figures["devices"])
    line = f"{compared} tokens of {len(prompts)} prompts, {equal} equal to the end, {by_rounding} until two were closer than rounding"
    line += f", distance mean {mean(flat(apart)):.4f}, largest {max(flat(apart)):.4f}"
    if asked.own:
        other, own, same = Theirs(asked.model, asked.context, "DISABLED"), [], 0
        for tokens, _, answer, said, _ in texts:
            own += distances(other.judge(tokens, answer), said)
            same += [step["token"] for step in other.complete(tokens, asked.tokens)] == answer
        del other
        line += f"; llama.cpp without flash attention {same} equal to the end, mean {mean(flat(own)):.4f}, largest {max(flat(own)):.4f}"
    if asked.small and not asked.exact and mean(flat(apart)) > EXACT:
        sys.exit(f"the programs are {mean(flat(apart)):.4f} apart on average, more than {EXACT}: {line}")
    if asked.exact:
        with tempfile.TemporaryDirectory() as folder:
            exact = without_quantising(asked.model, folder)
            del theirs
            exact_theirs, exact_ours = Theirs(exact, asked.context), Ours(asked.generate, exact, asked.context)
            rows, from_exact = [], {"ours": [], "theirs": []}
            for tokens, given, answer, said, judged in texts:
                truth = exact_theirs.judge(tokens, answer)
                rows += distances(exact_ours.judge(given, answer), truth)
                from_exact["ours"] += flat(distances(judged, truth))
                from_exact["theirs"] += flat(distances(said, truth))
        largest, mine, yours = max(flat(rows)), mean(from_exact["ours"]), mean(from_exact["theirs"])
        line += f"; with 32 bits mean {mean(flat(rows)):.5f}, largest {largest:.4f}; quantised from exact {mine:.4f}, llama.cpp {yours:.4f}"
        # Random models are less sure of anything, so single ones may be further apart.
        most = mean(flat(rows)) if asked.small else largest
        if most > EXACT:
            sys.exit(f"with 32 bits the programs are {most:.4f} apart, more than {EXACT}: {line}")
        # The truth is what llama.cpp says with 32 bits.
        if mine > RATIO * yours + mean(flat(rows)):
            sys.exit(f"quantised weights are {mine:.4f} from the exact ones, llama.cpp's {yours:.4f}: {line}")
    print(line)


if __name__ == "__main__":
    main()
