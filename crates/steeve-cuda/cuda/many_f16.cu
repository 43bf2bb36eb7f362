// Keys and values of f16.

MANY(64_f16, F16, 64, 1, 64, 3)
MANY(96_f16, F16, 96, 1, 64, 2)
MANY(128_f16, F16, 128, 1, 64, 2)
MANY(256_f16, F16, 128, 2, 32, 2)
