// Products of matrices that are none for the library: with few columns, with experts, with strange strides.

template <int R, int C, bool BY_ID> __device__ void few_columns_of(const ProductParams &a) {
    switch (a.weights.dtype) {
    case F32: few_columns<F32, R, C, BY_ID>(a); break;
    case F16: few_columns<F16, R, C, BY_ID>(a); break;
    case BF16: few_columns<BF16, R, C, BY_ID>(a); break;
    case Q8_0: few_columns<Q8_0, R, C, BY_ID>(a); break;
    default: few_columns<Q4_0, R, C, BY_ID>(a); break;
    }
}

KERNEL(few_columns_1)(const ProductParams &a) { few_columns_of<4, 1, false>(a); }
KERNEL(few_columns_2)(const ProductParams &a) { few_columns_of<4, 2, false>(a); }
KERNEL(few_columns_4)(const ProductParams &a) { few_columns_of<4, 4, false>(a); }
KERNEL(few_columns_8)(const ProductParams &a) { few_columns_of<2, 8, false>(a); }
KERNEL(few_columns_id)(const ProductParams &a) { few_columns_of<4, 1, true>(a); }

#define TILE 64
#define DEEP 16

// Rows of the two matrices and of the result, each at any place: a tile of the product. 256 threads.
__device__ void tile_product(
    const char *w, const Tensor &wt, i64 w_rows, const char *const *b, const Tensor &bt, char *const *r, const Tensor &rt,
    i64 first, int columns, i64 k
) {
    __shared__ float left[DEEP][TILE + 1], right[DEEP][TILE + 1];
    float sums[4][4] = {};
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (i64 deep = 0; deep < k; deep += DEEP) {
        __syncthreads();
        if (is_block(wt.dtype)) {
            // Each thread has four elements, which share what their block says. Rows are whole blocks.
            int row = threadIdx.x / 4, at = threadIdx.x % 4 * 4;
            Four four = {};
            if (deep + at < k && first + row < w_rows) four = weights_at(w + (first + row) * wt.nb[1], wt.dtype, deep + at);
#pragma unroll
            for (int e = 0; e < 4; e++) left[at + e][row] = four.x[e];
        }
        for (int j = threadIdx.x; j < TILE * DEEP; j += 256) {
            int row = j / DEEP, at = j % DEEP;
            bool in_k = deep + at < k;
            if (!is_block(wt.dtype)) {
                left[at][row] = in_k && first + row < w_rows
                    ? load(w + (first + row) * wt.nb[1] + (deep + at) * wt.nb[0], wt.dtype) : 0;
            }
            right[at][row] = in_k && row < columns ? load(b[row] + (deep + at) * bt.nb[0], bt.dtype) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int at = 0; at < DEEP; at++) {
            float u[4], v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) u[j] = left[at][x + 16 * j], v[j] = right[at][y + 16 * j];
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += u[i] * v[j];
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            i64 row = first + x + 16 * i;
            int column = y + 16 * j;
            if (row < w_rows && column < columns) *(float *)(r[column] + row * rt.nb[0]) = sums[i][j];
        }
    }
}

// Any strides. Blocks: rows, columns, planes.
KERNEL(tiles)(const ProductParams &a) {
    __shared__ const char *b[TILE];
    __shared__ char *r[TILE];
    const Tensor &w = a.weights, &bt = a.inputs;
    i64 column = (i64)blockIdx.y * TILE;
    int columns = bt.ne[1] - column < TILE ? (int)(bt.ne[1] - column) : TILE;
    for (i64 plane = blockIdx.z; plane < a.planes; plane += gridDim.z) {
        i64 i2 = plane % bt.ne[2], i3 = plane / bt.ne[2];
        __syncthreads();
        if (threadIdx.x < columns) {
            i64 at = column + threadIdx.x;
            b[threadIdx.x] = bt.data + at * bt.nb[1] + i2 * bt.nb[2] + i3 * bt.nb[3];
            r[threadIdx.x] = a.result.data + at * a.result.nb[1] + i2 * a.result.nb[2] + i3 * a.result.nb[3];
        }
        __syncthreads();
        const char *start = w.data + i2 / a.plane_repeats * w.nb[2] + i3 / a.cube_repeats * w.nb[3];
        tile_product(start, w, w.ne[1], b, bt, r, a.result, (i64)blockIdx.x * TILE, columns, w.ne[0]);
    }
}

// Experts. Blocks: rows, pieces of what an expert gets, experts. Each block looks for the rows that its expert gets.
KERNEL(tiles_id)(const ProductParams &a) {
    __shared__ const char *b[TILE];
    __shared__ char *r[TILE];
    __shared__ int counts[8];
    const Tensor &w = a.weights, &bt = a.inputs, &ids = a.ids;
    i64 used = ids.ne[0], all = used * ids.ne[1];
    for (i64 expert = blockIdx.z; expert < w.ne[2]; expert += gridDim.z) {
        i64 skip = (i64)blockIdx.y * TILE, seen = 0;
        int columns = 0;
        for (i64 first = 0; first < all && columns < TILE; first += 256) {
            i64 at = first + threadIdx.x, slot = at % used, token = at / used;
            i64 id = at < all ? *(const int *)(ids.data + slot * ids.nb[0] + token * ids.nb[1]) : -1;
            if (at < all && (id < 0 || id >= w.ne[2])) report(a.asserts, id);
            u32 votes = __ballot_sync(ALL, id == expert && at < all);
            __syncthreads();
            if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = __popc(votes);
            __syncthreads();
            int before = __popc(votes & ((1u << threadIdx.x % 32) - 1)), total = 0;
            for (int j = 0; j < 8; j++) {
                if (j < threadIdx.x / 32) before += counts[j];
                total += counts[j];
            }
            i64 place = seen + before - skip;
            if (at < all && id == expert && place >= 0 && place < TILE) {
                b[place] = bt.data + slot % bt.ne[1] * bt.nb[1] + token * bt.nb[2];
                r[place] = a.result.data + slot * a.result.nb[1] + token * a.result.nb[2];
            }
            seen += total;
            i64 got = seen - skip;
            columns = got < 0 ? 0 : got > TILE ? TILE : (int)got;
        }
        __syncthreads();
        if (columns == 0) continue;
        const char *start = w.data + expert * w.nb[2];
        tile_product(start, w, w.ne[1], b, bt, r, a.result, (i64)blockIdx.x * TILE, columns, w.ne[0]);
        __syncthreads();
    }
}

// Rows rounded to f16 for the library. One whose largest element is too large for f16, or so small that much of it would be
// lost, is divided by a power of two first. A block does a row.
KERNEL(narrow)(const NarrowParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const char *from = a.source.data + offset_of(a.source, at);
    char *to = a.result.data + offset_of(a.result, at);
    int type = a.source.dtype;
    i64 n = a.result.ne[0], step = a.source.nb[0];
    float most = 0;
    // What is infinite or no number stays so.
    auto look = [&](float x) { most = fabsf(x) < INFINITE && fabsf(x) > most ? fabsf(x) : most; };
    if (a.in_fours) {
        for (i64 i = threadIdx.x; i < n / 4; i += blockDim.x) {
            Four four = load4(from + 4 * i * step, type);
#pragma unroll
            for (int j = 0; j < 4; j++) look(four.x[j]);
        }
    } else {
        for (i64 i = threadIdx.x; i < n; i += blockDim.x) look(load(from + i * step, type));
    }
    most = block_max(most);
    int power = most >= 32768.0f ? ilogbf(most) - 14 : 0;
    if (most > 0 && most < 0.00390625f) power = ilogbf(most) < -120 ? -120 : ilogbf(most);
    float factor = ldexpf(1.0f, -power);
    if (threadIdx.x == 0) a.powers[blockIdx.x] = ldexpf(1.0f, power);
    if (a.in_fours) {
        for (i64 i = threadIdx.x; i < n / 4; i += blockDim.x) {
            Four four = load4(from + 4 * i * step, type);
#pragma unroll
            for (int j = 0; j < 4; j++) four.x[j] *= factor;
            store4(to + i * 8, F16, four);
        }
    } else {
        for (i64 i = threadIdx.x; i < n; i += blockDim.x) store(to + i * 2, F16, load(from + i * step, type) * factor);
    }
}

// Rows of the result times the powers that those of the second source were divided by. A block does a row.
KERNEL(widen)(const WidenParams &a) {
    float power = a.powers[blockIdx.x];
    if (power == 1) return;
    char *row = a.result.data + offset_of(a.result, row_of(blockIdx.x, a.result.ne));
    for (i64 i = threadIdx.x; i < a.result.ne[0]; i += blockDim.x) *(float *)(row + i * a.result.nb[0]) *= power;
}

// The sums of nothing.
KERNEL(zeros)(const ZerosParams &a) {
    if (element() >= a.count) return;
    store(a.result.data + offset_of(a.result, place_of(element(), a.result.ne)), a.result.dtype, 0);
}
