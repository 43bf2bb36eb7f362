"""python server.py MODEL.gguf CASES: what llama.cpp's server says at temperature 0 on one thread, with its log probabilities.

CASES are context/batch/flash (on, off), with commas between. Each case is named on the error stream too.
"""

import sys

import xllamacpp

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "The ship sailed from the harbour with a hold full of barrels, and nobody knew what was in them. " * 9 + "Then",
]


def serve(path, context, batch, flash):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_batch = params.n_ubatch = batch
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    kinds = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    for prompt in PROMPTS:
        request = {"prompt": prompt, "max_tokens": 20, "temperature": 0.0, "logprobs": 2, "cache_prompt": False}
        yield server.handle_completions(request)["choices"][0]


def main():
    path, cases = sys.argv[1:]
    for case in cases.split(","):
        print(f"case: {case}", file=sys.stderr, flush=True)
        context, batch, flash = case.split("/")
        for choice in serve(path, int(context), int(batch), flash == "on"):
            print(case, repr(choice["text"]), choice["logprobs"], flush=True)


main()
