// Blocks that only weights have, read as floats.

// Four elements of a row of blocks that only weights have: each is `scale * x + least`. Blocks are described in
// `steeve-cpu/src/quant`; scales are exact, so that an element is rounded once.
struct Quad {
    float x[4];
    float scale, least;
};

// Four bytes. Blocks are at multiples of two, and with `WORDS` at multiples of four.
template <bool WORDS> __device__ u32 word_at(const char *p) {
    if (WORDS) return *(const u32 *)p;
    return ((const u16 *)p)[0] | (u32)((const u16 *)p)[1] << 16;
}

// Bytes as floats without a conversion: they become the lowest bits of a float that is large enough.
__device__ float byte_as_float(u32 bytes, int which, float less) {
    return __uint_as_float(__byte_perm(bytes, 0x4b000000, 0x7540 + which)) - less;
}

// Small whole numbers as floats, the same way.
__device__ float small_float(u32 number) { return __uint_as_float(0x4b000000 | number) - 8388608.0f; }

__device__ Quad quad_of(u32 quants, float less, float scale, float least) {
    Quad out;
#pragma unroll
    for (int j = 0; j < 4; j++) out.x[j] = byte_as_float(quants, j, 8388608.0f + less);
    out.scale = scale, out.least = least;
    return out;
}

// Four bits, each as the lowest one of a byte.
__device__ u32 bits_apart(u32 bits) { return (bits & 15) * 0x00204081 & 0x01010101; }

// Four elements of two halves of 16, which are the low and the high nibbles of 16 bytes.
template <bool WORDS> __device__ u32 nibbles_at(const char *pairs, int j) {
    return word_at<WORDS>(pairs + j % 16) >> j / 16 * 4 & 0x0f0f0f0f;
}

// Twice the number of one sign, two exponent bits and one bit behind the point. In f16 the same bits are it, but for a power
// of two.
__device__ float from_e2m1(u32 nibble) {
    return from_f16((u16)((nibble & 8) << 12 | (nibble & 7) << 9)) * 32768.0f;
}

// 2 to the power of `exponent - 128`. The two smallest are subnormal.
__device__ float half_of_power(u32 exponent) {
    return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

// From element `j` of a block on, a multiple of four.
template <int TYPE, bool WORDS> __device__ __forceinline__ Quad quad_at(const char *b, int j) {
    auto half = [&](int at) { return from_f16(*(const u16 *)(b + at)); };
    // Two halves that follow one another.
    auto halves = [&](int at) {
        u32 both = word_at<WORDS>(b + at);
        return make_float2(from_f16((u16)both), from_f16((u16)(both >> 16)));
    };
    auto byte = [&](int at) { return (u32) * (const u8 *)(b + at); };
    if constexpr (TYPE == Q4_1) {
        float2 ends = halves(0);
        return quad_of(nibbles_at<WORDS>(b + 4, j), 0, ends.x, ends.y);
    }
    if constexpr (TYPE == Q5_0 || TYPE == Q5_1) {
        const int bits = TYPE == Q5_0 ? 2 : 4;
        u32 quants = nibbles_at<WORDS>(b + bits + 4, j) | bits_apart(word_at<WORDS>(b + bits) >> j) << 4;
        if (TYPE == Q5_0) return quad_of(quants, 16, half(0), 0);
        float2 ends = halves(0);
        return quad_of(quants, 0, ends.x, ends.y);
    }
    if constexpr (TYPE == MXFP4) {
        Quad out;
#pragma unroll
        for (int k = 0; k < 4; k++) out.x[k] = from_e2m1(byte(1 + j % 16 + k) >> j / 16 * 4);
        out.scale = half_of_power(byte(0)), out.least = 0;
        return out;
    }
    // Parts of 32 elements have their bits at the same places of the same bytes; groups of 16 have a factor.
    int half_of_it = j / 128, part = j / 32, group = j / 16, within = j % 32;
    if constexpr (TYPE == Q2_K) {
        u32 quants = word_at<WORDS>(b + 16 + 32 * half_of_it + within) >> part % 4 * 2 & 0x03030303;
        u32 both = byte(group);
        float2 steps = halves(80);
        return quad_of(quants, 0, steps.x * small_float(both & 15), -steps.y * small_float(both >> 4));
    }
    if constexpr (TYPE == Q3_K) {
        u32 quants = word_at<WORDS>(b + 32 + 32 * half_of_it + within) >> part % 4 * 2 & 0x03030303;
        quants |= (word_at<WORDS>(b + within) >> part & 0x01010101) << 2;
        u32 low = byte(96 + group % 8) >> group / 8 * 4 & 15, high = byte(104 + group % 4) >> group / 4 * 2 & 3;
        return quad_of(quants, 4, half(108) * (small_float(low | high << 4) - 32), 0);
    }
    if constexpr (TYPE == Q4_K || TYPE == Q5_K) {
        u32 quants = word_at<WORDS>(b + (TYPE == Q4_K ? 16 : 48) + 32 * (part / 2) + within) >> part % 2 * 4 & 0x0f0f0f0f;
        if (TYPE == Q5_K) quants |= (word_at<WORDS>(b + 16 + within) >> part & 0x01010101) << 4;
        // Six bits each: those of the last four parts are in two places.
        u32 one = word_at<WORDS>(b + 4), two = word_at<WORDS>(b + 8), rest = word_at<WORDS>(b + 12);
        int shift = part % 4 * 8;
        u32 factor = one >> shift & 63, least = two >> shift & 63;
        if (part >= 4) {
            factor = (rest >> shift & 15) | (one >> shift >> 2 & 0x30);
            least = (rest >> shift >> 4 & 15) | (two >> shift >> 2 & 0x30);
        }
        float2 steps = halves(0);
        return quad_of(quants, 0, steps.x * small_float(factor), -steps.y * small_float(least));
    }
    // Q6_K.
    int quarter = part % 4;
    u32 low = word_at<WORDS>(b + 64 * half_of_it + quarter % 2 * 32 + within) >> quarter / 2 * 4 & 0x0f0f0f0f;
    u32 high = word_at<WORDS>(b + 128 + 32 * half_of_it + within) >> quarter * 2 & 0x03030303;
    return quad_of(low | high << 4, 32, half(208) * (small_float(byte(192 + group) ^ 128) - 128), 0);
}

template <int TYPE> __device__ Four floats_at(const char *row, i64 i) {
    const int length = block_length<TYPE>;
    Quad quad = quad_at<TYPE, false>(row + (u64)i / length * block_bytes<TYPE>, (int)((u64)i % length));
    Four out;
#pragma unroll
    for (int j = 0; j < 4; j++) out.x[j] = quad.scale * quad.x[j] + quad.least;
    return out;
}

// Four elements of a row of any type that can be read as floats, from a multiple of four on.
__device__ Four weights_at(const char *row, int type, i64 i) {
    switch (type) {
    case Q4_1: return floats_at<Q4_1>(row, i);
    case Q5_0: return floats_at<Q5_0>(row, i);
    case Q5_1: return floats_at<Q5_1>(row, i);
    case MXFP4: return floats_at<MXFP4>(row, i);
    case Q2_K: return floats_at<Q2_K>(row, i);
    case Q3_K: return floats_at<Q3_K>(row, i);
    case Q4_K: return floats_at<Q4_K>(row, i);
    case Q5_K: return floats_at<Q5_K>(row, i);
    case Q6_K: return floats_at<Q6_K>(row, i);
    default: return load4_at(row, type, i);
    }
}

// One element of such a row.
__device__ float weight_at(const char *row, int type, i64 step, i64 i) {
    if (!is_weight_block(type)) return load_at(row, type, step, i);
    Four four = weights_at(row, type, i / 4 * 4);
    int j = (int)(i % 4);
    return j < 2 ? (j == 0 ? four.x[0] : four.x[1]) : (j == 2 ? four.x[2] : four.x[3]);
}
