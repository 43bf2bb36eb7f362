"""Makes the golden blocks of this folder: python3 make.py (needs the packages gguf and numpy).

For each type: TYPE.blocks, as in a GGUF file, and TYPE.f32, what gguf makes of them. Types that gguf can quantise are made of
rows.f32; the others are random bytes with scales of a sensible size.
"""

import pathlib

import numpy as np
from gguf import GGMLQuantizationType, quants

HERE = pathlib.Path(__file__).parent
# Where the f16 numbers of a block stand.
HALVES = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
BYTES = {"Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
NAMES = {"MXFP4": "mxfp4", **{name: name[0].lower() + name[1:] for name in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", *BYTES]}}

random = np.random.default_rng(10)
rows = random.standard_normal((8, 64)).astype(np.float32)
rows[1] *= 1000
rows[2] *= 1e-3
rows[3] = np.round(rows[3] * 4) / 4
rows[4, :32] = 0
rows.tofile(HERE / "rows.f32")
for name, ours in NAMES.items():
    kind = GGMLQuantizationType[name]
    if name in BYTES:
        blocks = random.integers(0, 256, (4, BYTES[name]), dtype=np.uint8)
        for at in HALVES[name]:
            blocks[:, at : at + 2] = random.uniform(-0.1, 0.1, (4, 1)).astype(np.float16).view(np.uint8)
    else:
        blocks = quants.quantize(rows, kind)
    blocks.tofile(HERE / f"{ours}.blocks")
    quants.dequantize(blocks, kind).astype(np.float32).tofile(HERE / f"{ours}.f32")
