"""python resident.py MODEL.gguf CONTEXT/BATCH/FLASH TOKENS: the most resident memory that llama.cpp's server ever had, in KiB.

TOKENS is the length of the prompt, roughly; 24 more are generated, on one thread, at temperature 0. Behind the memory
are milliseconds per token. What was said goes to the error stream.
"""

import sys

import xllamacpp


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def main():
    path, case, tokens = sys.argv[1:]
    context, batch, flash = case.split("/")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = int(context)
    params.n_batch = params.n_ubatch = int(batch)
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    kinds = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = (
        kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash == "on" else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    server = xllamacpp.Server(params)
    words = ("The ship sailed from the harbour with a hold full of barrels, and nobody knew what was in them. " * 200).split()
    prompt = " ".join(words[: max(1, int(tokens) * 19 // 22)])
    request = {"prompt": prompt, "max_tokens": 24, "temperature": 0.0, "cache_prompt": False}
    answer = server.handle_completions(request)
    print(repr(answer["choices"][0]["text"]), file=sys.stderr)
    print(peak(), f"{answer['timings']['predicted_per_token_ms']:.3f}", flush=True)


main()
