"""python models.py KIND TYPE FILE [WHAT=NUMBER ...]: a language model with random weights, as a GGUF file, with numpy alone.

KIND is llama, gemma3 or qwen3moe, TYPE f16 or q4_0 (matrices; everything else is f32). WHAT, with what it is if not said:
layers=8 width=2048 heads=16 kv=8 head=128 hidden=8192 experts=32 used=8 words=32000 seed=1. There is no vocabulary: whoever
runs it gives numbers of tokens. What it says makes no sense, but it takes all the computation of a real model.
"""

import os
import struct
import sys

import numpy as np

F32, F16, Q4_0 = 0, 1, 2
ALIGNMENT = 32


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def pair(key, value):
    """A line of the header: 32 bits without a sign, 32 bits of floating point, or a text."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    return text(key) + struct.pack("<II", 4, value)


def header(kind, it):
    yield "general.architecture", kind
    yield "tokenizer.ggml.model", "none"
    for key, value in {
        "vocab_size": it["words"],
        "block_count": it["layers"],
        "context_length": 32768,
        "embedding_length": it["width"],
        "feed_forward_length": it["hidden"],
        "attention.head_count": it["heads"],
        "attention.head_count_kv": it["kv"],
        "attention.key_length": it["head"],
        "attention.value_length": it["head"],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": it["head"],
        "rope.freq_base": 10000.0,
    }.items():
        yield f"{kind}.{key}", value
    if kind == "gemma3":
        yield "gemma3.attention.sliding_window", 512
    if kind == "qwen3moe":
        yield "qwen3moe.expert_count", it["experts"]
        yield "qwen3moe.expert_used_count", it["used"]
        yield "qwen3moe.expert_feed_forward_length", it["hidden"] // it["used"]


def tensors(kind, it):
    """Name and shape of each tensor, innermost dimension first."""
    width, heads, kv = it["width"], it["heads"] * it["head"], it["kv"] * it["head"]
    yield "token_embd.weight", (width, it["words"])
    yield "output_norm.weight", (width,)
    yield "output.weight", (width, it["words"])
    for layer in range(it["layers"]):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (width,)
        yield f"{block}.attn_q.weight", (width, heads)
        yield f"{block}.attn_k.weight", (width, kv)
        yield f"{block}.attn_v.weight", (width, kv)
        yield f"{block}.attn_output.weight", (heads, width)
        yield f"{block}.ffn_norm.weight", (width,)
        if kind != "llama":
            yield f"{block}.attn_q_norm.weight", (it["head"],)
            yield f"{block}.attn_k_norm.weight", (it["head"],)
        if kind == "gemma3":
            yield f"{block}.post_attention_norm.weight", (width,)
            yield f"{block}.post_ffw_norm.weight", (width,)
        if kind == "qwen3moe":
            hidden, experts = it["hidden"] // it["used"], it["experts"]
            yield f"{block}.ffn_gate_inp.weight", (width, experts)
            yield f"{block}.ffn_gate_exps.weight", (width, hidden, experts)
            yield f"{block}.ffn_up_exps.weight", (width, hidden, experts)
            yield f"{block}.ffn_down_exps.weight", (hidden, width, experts)
        else:
            yield f"{block}.ffn_gate.weight", (width, it["hidden"])
            yield f"{block}.ffn_up.weight", (width, it["hidden"])
            yield f"{block}.ffn_down.weight", (it["hidden"], width)


def type_of(name, shape, quantised):
    # As llama.cpp has them: vectors and the router in single precision.
    if len(shape) == 1 or name.endswith("ffn_gate_inp.weight"):
        return F32
    return Q4_0 if quantised else F16


def size(shape, kind):
    count = int(np.prod(shape))
    return {F32: 4 * count, F16: 2 * count, Q4_0: count // 32 * 18}[kind]


def values(shape, kind, random):
    count = int(np.prod(shape))
    if len(shape) == 1:
        return (1 + 0.1 * random.standard_normal(count, dtype=np.float32)).tobytes()
    scale = 1 / np.sqrt(shape[0])
    if kind == Q4_0:
        # A scale for 32 numbers of 4 bits, from -8 to 7, whose deviation is 4.6.
        blocks = np.empty((count // 32, 18), dtype=np.uint8)
        scales = (scale / 4.6 * random.uniform(0.5, 1.5, count // 32)).astype(np.float16)
        blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
        blocks[:, 2:] = random.integers(0, 256, (count // 32, 16), dtype=np.uint8)
        return blocks.tobytes()
    if kind == F16:
        # Its bits at once, which is much faster: a sign, one of two exponents (the deviation is then 1.2), and a fraction.
        bits = random.integers(0, 65536, count, dtype=np.uint16)
        exponent = np.uint16(15 + round(np.log2(scale / 1.2)))
        return ((bits & 0x83FF) | (exponent - (bits >> 10 & 1) << 10)).tobytes()
    return (scale * random.standard_normal(count, dtype=np.float32)).astype(np.float32).tobytes()


def write(kind, quantised, path, it):
    random = np.random.default_rng(it["seed"])
    pairs = list(header(kind, it))
    all_tensors = [(name, shape, type_of(name, shape, quantised)) for name, shape in tensors(kind, it)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(pairs)) + b"".join(pair(*it) for it in pairs)
    offset = 0
    for name, shape, type_ in all_tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_, offset)
        offset += -(-size(shape, type_) // ALIGNMENT) * ALIGNMENT
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, shape, type_ in all_tensors:
            content = values(shape, type_, random)
            file.write(content + bytes(-len(content) % ALIGNMENT))
    os.rename(part, path)


def main():
    kind, type_, path, *rest = sys.argv[1:]
    if kind not in ("llama", "gemma3", "qwen3moe") or type_ not in ("f16", "q4_0"):
        sys.exit(__doc__)
    it = dict(layers=8, width=2048, heads=16, kv=8, head=128, hidden=8192, experts=32, used=8, words=32000, seed=1)
    for word in rest:
        key, value = word.split("=")
        if key not in it:
            sys.exit(f"models.py: what is {key}?")
        it[key] = int(value)
    write(kind, type_ == "q4_0", path, it)


if __name__ == "__main__":
    main()
