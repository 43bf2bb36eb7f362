// Products of matrices with few columns.

// A block of four warps does R rows of the first source with up to C columns: each warp takes every fourth piece of 256
// elements, so that what is read of the second source serves R rows. The second source is f32 without gaps.
// Blocks: rows, columns, planes. With ids, a column is a slot of a token, and its id names the plane of the first source.

#define PARTS 4

// Eight elements of a row, of which four follow one another and then four others; blocks are not yet scaled.
struct Eight {
    float x[8];
    float scale;
};

__device__ Eight load8(const char *line, int type, i64 first) {
    Eight out;
    out.scale = 1;
    if (type == F32) {
        Four one = load4(line + first * 4, F32), two = load4(line + first * 4 + 16, F32);
#pragma unroll
        for (int j = 0; j < 4; j++) out.x[j] = one.x[j], out.x[4 + j] = two.x[j];
    } else if (type == F16 || type == BF16) {
        uint4 bits = *(const uint4 *)(line + first * 2);
        u32 all[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u16 half = (u16)(all[j / 2] >> (j % 2 * 16));
            out.x[j] = type == F16 ? from_f16(half) : from_bf16(half);
        }
    } else if (type == Q8_0) {
        const u16 *block = (const u16 *)(block_of<Q8_0>(line, first));
        const u16 *pairs = block + 1 + first % 32 / 2;
        u32 low = pairs[0] | (u32)pairs[1] << 16, high = pairs[2] | (u32)pairs[3] << 16;
        low ^= 0x80808080, high ^= 0x80808080;
        out.scale = from_f16(block[0]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            out.x[j] = byte_as_float(low, j, 8388736.0f);
            out.x[4 + j] = byte_as_float(high, j, 8388736.0f);
        }
    } else {
        const u16 *block = (const u16 *)(block_of<Q4_0>(line, first));
        const u16 *pairs = block + 1 + first % 32 / 4;
        u32 both = pairs[0] | (u32)pairs[1] << 16, low = both & 0x0f0f0f0f, high = both >> 4 & 0x0f0f0f0f;
        out.scale = from_f16(block[0]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            out.x[j] = byte_as_float(low, j, 8388616.0f);
            out.x[4 + j] = byte_as_float(high, j, 8388616.0f);
        }
    }
    return out;
}

// The same for blocks that only weights have: two times four elements that are in the same bytes, or near them, from
// element `j` of a block on. A lane has the same place in all of its blocks, so that most of what finds it is done once.
template <int TYPE, int R, int C>
__device__ __forceinline__ void add_quads(
    const char *const *lines, const float *const *x, i64 block, int j, float (*sums)[C]
) {
    // Those that have a least element are also those of whole words.
    const bool has_least = TYPE == Q4_1 || TYPE == Q5_1 || TYPE == Q2_K || TYPE == Q4_K || TYPE == Q5_K;
    const int apart = block_length<TYPE> == 256 ? 32 : 16;
    Quad one[R], two[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const char *b = lines[r] + block * block_bytes<TYPE>;
        one[r] = quad_at<TYPE, has_least>(b, j);
        two[r] = quad_at<TYPE, has_least>(b, j + apart);
    }
    i64 low = block * block_length<TYPE> + j;
#pragma unroll
    for (int c = 0; c < C; c++) {
        float4 u = *(const float4 *)(x[c] + low), v = *(const float4 *)(x[c] + low + apart);
        float all_u = has_least ? (u.x + u.y) + (u.z + u.w) : 0, all_v = has_least ? (v.x + v.y) + (v.z + v.w) : 0;
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float *e = one[r].x, *f = two[r].x;
            float sum_u = e[0] * u.x + e[1] * u.y + e[2] * u.z + e[3] * u.w;
            float sum_v = f[0] * v.x + f[1] * v.y + f[2] * v.z + f[3] * v.w;
            sums[r][c] += one[r].scale * sum_u + two[r].scale * sum_v;
            if (has_least) sums[r][c] += one[r].least * all_u + two[r].least * all_v;
        }
    }
}

// Where columns of the second source and of the result are, and where the first source starts for them. False where an id
// names no plane.
template <int C, bool BY_ID>
__device__ __forceinline__ bool find_columns(
    const ProductParams &a, i64 plane, i64 column, i64 columns, const char *&line, const float *(&x)[C], char *(&to)[C]
) {
    const Tensor &w = a.weights, &b = a.inputs, &ids = a.ids;
    line = w.data;
    if (BY_ID) {
        i64 slot = column % ids.ne[0], token = column / ids.ne[0];
        i64 id = *(const int *)(ids.data + slot * ids.nb[0] + token * ids.nb[1]);
        if (id < 0 || id >= w.ne[2]) {
            if (threadIdx.x == 0) report(a.asserts, id);
            return false;
        }
        line += id * w.nb[2];
        x[0] = (const float *)(b.data + slot % b.ne[1] * b.nb[1] + token * b.nb[2]);
        to[0] = a.result.data + slot * a.result.nb[1] + token * a.result.nb[2];
    } else {
        i64 i2 = 0, i3 = 0;
        // Divisions take longer than short rows.
        if (a.planes > 1) {
            i2 = plane % b.ne[2], i3 = plane / b.ne[2];
            line += i2 / a.plane_repeats * w.nb[2] + i3 / a.cube_repeats * w.nb[3];
        }
#pragma unroll
        for (int c = 0; c < C; c++) {
            // Those beyond the last are done twice.
            i64 at = column + c < columns ? column + c : columns - 1;
            x[c] = (const float *)(b.data + at * b.nb[1] + i2 * b.nb[2] + i3 * b.nb[3]);
            to[c] = a.result.data + at * a.result.nb[1] + i2 * a.result.nb[2] + i3 * a.result.nb[3];
        }
    }
    return true;
}

// Adds up what the warps of a block have found, and writes it.
template <int R, int C>
__device__ __forceinline__ void store_columns(
    const ProductParams &a, i64 row, const float (&sums)[R][C], float (*parts)[R * C], char *const (&to)[C]
) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            float sum = warp_sum(sums[r][c]);
            if (lane == 0) parts[warp][r * C + c] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < R * C) {
        float sum = 0;
        for (int p = 0; p < PARTS; p++) sum += parts[p][threadIdx.x];
        int r = threadIdx.x / C, c = threadIdx.x % C;
        if (row + r < a.weights.ne[1]) {
#pragma unroll
            for (int j = 0; j < C; j++) {
                if (j == c) *(float *)(to[j] + (row + r) * a.result.nb[0]) = sum;
            }
        }
    }
}

// The type is known to the compiler, so that all that is read at once is on its way before anything is used.
template <int TYPE, int R, int C, bool BY_ID> __device__ void few_columns(const ProductParams &a) {
    __shared__ float parts[PARTS][R * C];
    const Tensor &w = a.weights, &b = a.inputs, &ids = a.ids;
    i64 row = (i64)blockIdx.x * R;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 k = w.ne[0], columns = BY_ID ? ids.ne[0] * ids.ne[1] : b.ne[1];
    for (i64 plane = blockIdx.z; plane < a.planes; plane += gridDim.z) {
        for (i64 column = (i64)blockIdx.y * C; column < columns; column += (i64)gridDim.y * C) {
            const float *x[C];
            char *to[C];
            const char *line;
            if (!find_columns<C, BY_ID>(a, plane, column, columns, line, x, to)) continue;
            const char *lines[R];
#pragma unroll
            for (int r = 0; r < R; r++) lines[r] = line + (row + r < w.ne[1] ? row + r : w.ne[1] - 1) * w.nb[1];
            float sums[R][C];
#pragma unroll
            for (int r = 0; r < R; r++) {
#pragma unroll
                for (int c = 0; c < C; c++) sums[r][c] = 0;
            }
            i64 done = 0;
            if constexpr (is_weight_block(TYPE)) {
                // Rows are whole blocks. Four lanes do one of 32 elements, and a warp one of 256.
                const int lanes = block_length<TYPE> / 8, apart = block_length<TYPE> == 256 ? 32 : 16;
                int start = (int)threadIdx.x % lanes * 8, j = start / (2 * apart) * (2 * apart) + start % (2 * apart) / 2;
                done = k;
#pragma unroll 1
                for (i64 block = (int)threadIdx.x / lanes; block < k / block_length<TYPE>; block += PARTS * 32 / lanes) {
                    add_quads<TYPE, R, C>(lines, x, block, j, sums);
                }
            } else if (a.is_aligned) {
                done = k / 256 * 256;
#pragma unroll 2
                for (i64 first = warp * 256 + lane * 8; first < done; first += PARTS * 256) {
                    Eight v[R];
#pragma unroll
                    for (int r = 0; r < R; r++) v[r] = load8(lines[r], TYPE, first);
                    i64 low = first, high = first + 4;
                    if (TYPE == Q4_0) {
                        // Both nibbles of four bytes.
                        low = first / 32 * 32 + first % 32 / 2;
                        high = low + 16;
                    }
#pragma unroll
                    for (int c = 0; c < C; c++) {
                        float4 one = *(const float4 *)(x[c] + low), two = *(const float4 *)(x[c] + high);
#pragma unroll
                        for (int r = 0; r < R; r++) {
                            const float *e = v[r].x;
                            float sum = e[0] * one.x + e[1] * one.y + e[2] * one.z + e[3] * one.w;
                            sum += e[4] * two.x + e[5] * two.y + e[6] * two.z + e[7] * two.w;
                            sums[r][c] += v[r].scale * sum;
                        }
                    }
                }
            }
            for (i64 i = done + threadIdx.x; !is_weight_block(TYPE) && i < k; i += PARTS * 32) {
#pragma unroll
                for (int r = 0; r < R; r++) {
                    float v = load_at(lines[r], TYPE, w.nb[0], i);
#pragma unroll
                    for (int c = 0; c < C; c++) sums[r][c] += v * x[c][i];
                }
            }
            store_columns(a, row, sums, parts, to);
        }
    }
}
