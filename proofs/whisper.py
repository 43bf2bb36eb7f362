"""python whisper.py HEADER MODEL: what whisper.cpp hears in a few seconds of sound, on one thread, flash attention off and on.

HEADER is a model without weights, such as whisper.cpp has them for its own tests. MODEL is that with random weights and is
written if it is not there. What is heard makes no sense, but it takes all the computation of a real model.
"""

import os
import struct
import sys

import numpy as np
from pywhispercpp.model import Model

RATE = 16000


def tensors(header):
    """Name and shape of each tensor of a model with these hyperparameters, innermost dimension first."""
    (words, frames, width, _, layers, text, text_width, _, text_layers, mels) = header[:10]
    yield "encoder.positional_embedding", (width, frames)
    yield "encoder.conv1.weight", (3, mels, width)
    yield "encoder.conv1.bias", (1, width)
    yield "encoder.conv2.weight", (3, width, width)
    yield "encoder.conv2.bias", (1, width)
    yield from norm("encoder.ln_post", width)
    for layer in range(layers):
        block = f"encoder.blocks.{layer}"
        yield from attention(f"{block}.attn", width)
        yield from network(block, width)
    yield "decoder.positional_embedding", (text_width, text)
    yield "decoder.token_embedding.weight", (text_width, words)
    yield from norm("decoder.ln", text_width)
    for layer in range(text_layers):
        block = f"decoder.blocks.{layer}"
        yield from attention(f"{block}.attn", text_width)
        yield from attention(f"{block}.cross_attn", text_width)
        yield from network(block, text_width)


def norm(name, width):
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def attention(name, width):
    yield from norm(f"{name}_ln", width)
    for part in ("query", "key", "value", "out"):
        yield f"{name}.{part}.weight", (width, width)
        if part != "key":
            yield f"{name}.{part}.bias", (width,)


def network(block, width):
    yield from norm(f"{block}.mlp_ln", width)
    yield f"{block}.mlp.0.weight", (width, 4 * width)
    yield f"{block}.mlp.0.bias", (4 * width,)
    yield f"{block}.mlp.2.weight", (4 * width, width)
    yield f"{block}.mlp.2.bias", (width,)


def write_model(source, target):
    random = np.random.default_rng(1)
    with open(source, "rb") as file:
        content = file.read()
    header = struct.unpack_from("<11i", content, 4)
    with open(target + ".part", "wb") as file:
        file.write(content)
        for name, shape in tensors(header):
            # As whisper.cpp wants it: matrices in half precision, everything else in single.
            half = len(shape) > 1 and name.endswith("weight")
            values = random.standard_normal(int(np.prod(shape)), dtype=np.float32) / np.sqrt(shape[0])
            file.write(struct.pack("<3i", len(shape), len(name), int(half)))
            file.write(struct.pack(f"<{len(shape)}i", *shape))
            file.write(name.encode())
            file.write(values.astype(np.float16 if half else np.float32).tobytes())
    os.rename(target + ".part", target)


def hear(model, flash, sounds):
    listener = Model(
        model,
        n_threads=1,
        temperature=0.0,
        temperature_inc=0.0,
        max_tokens=24,
        print_progress=False,
        context_params={"use_gpu": False, "flash_attn": flash},
    )
    for sound in sounds:
        for it in listener.transcribe(sound, language="en", extract_probability=True):
            print("flash" if flash else "plain", it.t0, it.t1, repr(it.text), float(it.probability).hex())


def main():
    header, model = sys.argv[1:]
    if not os.path.exists(model):
        write_model(header, model)
    time = np.arange(6 * RATE) / RATE
    siren = 0.3 * np.sin(2 * np.pi * 220 * time * (1 + time / 5)) * (np.sin(9 * time) > 0)
    noise = 0.2 * np.random.default_rng(2).standard_normal(len(time)) * np.sin(5 * time)
    for flash in (False, True):
        hear(model, flash, [siren.astype(np.float32), noise.astype(np.float32)])


main()
