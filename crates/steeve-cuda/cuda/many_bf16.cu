// Keys and values of bf16.

MANY(64_bf16, BF16, 64, 1, 64, 2)
MANY(96_bf16, BF16, 96, 1, 32, 2)
MANY(128_bf16, BF16, 128, 1, 32, 2)
MANY(256_bf16, BF16, 128, 2, 32, 2)
