// Attention in one step (Milakov and Gimelshein 2018; Dao et al. 2022): scores exist in registers only.
//
// A block does a query, or a part of its keys: each of its four warps takes every fourth piece of a few keys, and what they
// have found is put together at the end. Where there are few queries, several blocks share the keys of one, and another
// kernel puts their parts together.

struct SoFar {
    float most, total;
};

// Puts together what the warps of a block have found about a query.
template <int R>
__device__ __forceinline__ void store_query(
    const AttentionParams &a, const SoFar *ends, const float (*sums)[R * 32], i64 token, i64 head, i64 outer, i64 part
) {
    i64 dv = a.v.ne[0], parts = a.parts;
    float most = -INFINITE, total = 0, factors[WARPS];
    for (int w = 0; w < WARPS; w++) most = ends[w].most > most ? ends[w].most : most;
    bool with_sink = parts == 1 && a.sinks.data;
    float sink = with_sink ? *(const float *)(a.sinks.data + head * a.sinks.nb[0]) : -INFINITE;
    most = sink > most ? sink : most;
    float base = most == -INFINITE ? 0 : most;
    for (int w = 0; w < WARPS; w++) {
        factors[w] = expf(ends[w].most - base);
        total += factors[w] * ends[w].total;
    }
    if (with_sink) total += expf(sink - base);
    char *to = a.result.data + head * a.result.nb[1] + token * a.result.nb[2] + outer * a.result.nb[3];
    u64 number = ((u64)outer * gridDim.y + head) * gridDim.x + token;
    float *partial = a.partial + (number * parts + part) * (dv + 2);
    if (parts > 1 && threadIdx.x == 0) partial[0] = most, partial[1] = total;
    float factor = total == 0 ? 0 : 1 / total;
    for (i64 i = threadIdx.x; i < dv; i += blockDim.x) {
        float out = 0;
        for (int w = 0; w < WARPS; w++) {
            if (factors[w] != 0) out += factors[w] * sums[w][i];
        }
        if (parts > 1) partial[2 + i] = out;
        else *(float *)(to + i * a.result.nb[0]) = out * factor;
    }
}

// Blocks: tokens, heads, outer times parts.
template <int TYPE, int R, int AHEAD> __device__ void attend(const AttentionParams &a) {
    __shared__ SoFar ends[WARPS];
    __shared__ float sums[WARPS][R * 32];
    const Tensor &q = a.q, &k = a.k, &v = a.v, &mask = a.mask;
    i64 token = blockIdx.x, head = blockIdx.y, parts = a.parts;
    i64 part = blockIdx.z % parts, outer = blockIdx.z / parts;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 d = q.ne[0], dv = v.ne[0], keys = k.ne[1], heads = q.ne[2];
    i64 share = (keys + parts - 1) / parts;
    i64 first = part * share, last = first + share < keys ? first + share : keys;
    const char *query = q.data + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
    const char *key_rows = k.data + head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.data + head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    const char *hide = 0;
    float slope = 1, softcap = a.softcap;
    if (mask.data) {
        hide = mask.data + token * mask.nb[1] + head % mask.ne[2] * mask.nb[2] + outer % mask.ne[3] * mask.nb[3];
        slope = slope_of(head, heads, a.max_bias);
    }
    float x[R], sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = lane * R + r;
        x[r] = i < d ? load(query + i * q.nb[0], q.dtype) : 0;
        sum[r] = 0;
    }
    SoFar so_far = {-INFINITE, 0};
    for (i64 key = first + warp * AHEAD; key < last; key += WARPS * AHEAD) {
        float scores[AHEAD], keys_read[AHEAD][R], values_read[AHEAD][R];
        // Each lane looks at the mask for one of the keys.
        float masked = hide && lane < AHEAD && key + lane < last ? load(hide + (key + lane) * mask.nb[0], mask.dtype) : 0;
        // All is on its way before anything is used. What is hidden may be read, but is not looked at: it may not have
        // been written.
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            i64 at = key + j < last ? key + j : last - 1;
            read_row<TYPE, R>(key_rows + at * k.nb[1], k, lane, (int)d, a.keys_in_fours, keys_read[j]);
            read_row<TYPE, R>(value_rows + at * v.nb[1], v, lane, (int)dv, a.values_in_fours, values_read[j]);
        }
        float most = so_far.most;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            float score = 0;
#pragma unroll
            for (int r = 0; r < R; r++) score += lane * R + r < d ? x[r] * keys_read[j][r] : 0;
            score = warp_sum(score) * a.scale;
            float hidden = __shfl_sync(ALL, masked, j);
            if (softcap != 0) score = softcap * tanhf(score);
            if (hide) score = __fadd_rn(score, __fmul_rn(slope, hidden));
            bool is_seen = key + j < last && hidden != -INFINITE;
            scores[j] = is_seen ? score : -INFINITE;
            most = scores[j] > most ? scores[j] : most;
        }
        float base = most == -INFINITE ? 0 : most;
        if (most != so_far.most) {
            float grown = expf(so_far.most - base);
            so_far.total *= grown;
#pragma unroll
            for (int r = 0; r < R; r++) sum[r] *= grown;
            so_far.most = most;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            float weight = expf(scores[j] - base);
            if (weight == 0) continue;
            so_far.total += weight;
#pragma unroll
            for (int r = 0; r < R; r++) sum[r] += lane * R + r < dv ? weight * values_read[j][r] : 0;
        }
    }
    if (lane == 0) ends[warp] = so_far;
#pragma unroll
    for (int r = 0; r < R; r++) sums[warp][lane * R + r] = sum[r];
    __syncthreads();
    store_query<R>(a, ends, sums, token, head, outer, part);
}

// Of any types, and of one type in fours.
#define ATTEND(R, AHEAD)                                                          \
    KERNEL(attend_##R)(const AttentionParams &a) { attend<ANY, R, AHEAD>(a); }                      \
    KERNEL(attend_##R##_f16)(const AttentionParams &a) { attend<F16, R, AHEAD>(a); }                  \
    KERNEL(attend_##R##_bf16)(const AttentionParams &a) { attend<BF16, R, AHEAD>(a); }                \
    KERNEL(attend_##R##_q8_0)(const AttentionParams &a) { attend<Q8_0, R, AHEAD>(a); }

ATTEND(4, 8)
ATTEND(8, 4)
ATTEND(16, 2)

#define MOST_PARTS 64

// Puts the parts of each query together. Blocks: tokens, heads, outer.
KERNEL(attend_parts)(const AttentionParams &a) {
    __shared__ float factors[MOST_PARTS];
    i64 token = blockIdx.x, head = blockIdx.y, outer = blockIdx.z, dv = a.v.ne[0];
    int parts = (int)a.parts, lane = threadIdx.x % 32;
    u64 number = ((u64)outer * gridDim.y + head) * gridDim.x + token;
    const float *partial = a.partial + number * parts * (dv + 2);
    float sink = a.sinks.data ? *(const float *)(a.sinks.data + head * a.sinks.nb[0]) : -INFINITE;
    // Each lane has two parts.
    float mosts[2], totals[2], most = sink, total = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int p = lane + 32 * h;
        mosts[h] = p < parts ? partial[p * (dv + 2)] : -INFINITE;
        totals[h] = p < parts ? partial[p * (dv + 2) + 1] : 0;
        most = mosts[h] > most ? mosts[h] : most;
    }
    most = warp_max(most);
    float base = most == -INFINITE ? 0 : most;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float grown = expf(mosts[h] - base);
        total += grown * totals[h];
        if (threadIdx.x < 32) factors[lane + 32 * h] = grown;
    }
    total = warp_sum(total);
    if (a.sinks.data) total += expf(sink - base);
    __syncthreads();
    float factor = total == 0 ? 0 : 1 / total;
    char *to = a.result.data + head * a.result.nb[1] + token * a.result.nb[2] + outer * a.result.nb[3];
    for (i64 i = threadIdx.x; i < dv; i += blockDim.x) {
        float out = 0;
#pragma unroll 8
        for (int p = 0; p < parts; p++) {
            float value = partial[p * (dv + 2) + 2 + i];
            out += factors[p] != 0 ? factors[p] * value : 0;
        }
        *(float *)(to + i * a.result.nb[0]) = out * factor;
    }
}

#define QUERIES 16
#define LONG 128
#define STEP (LONG + 4)

// The weight of each lane's score. What was summed before shrinks where a score is the largest so far.
__device__ __forceinline__ float weight_of(float score, float &most, float &total, float (&sums)[4]) {
    float larger = warp_max(score);
    larger = larger > most ? larger : most;
    float base = larger == -INFINITE ? 0 : larger;
    if (larger != most) {
        float grown = expf(most - base);
        total *= grown;
#pragma unroll
        for (int e = 0; e < 4; e++) sums[e] *= grown;
        most = larger;
    }
    float weight = expf(score - base);
    total += weight;
    return weight;
}

// Brings 32 keys and values into memory that all threads of a block share.
template <int TYPE>
__device__ __forceinline__ void load_tile(
    const AttentionParams &a, const char *key_rows, const char *value_rows, i64 first, float *keys_here, float *values_here
) {
    const Tensor &k = a.k, &v = a.v;
    i64 keys = k.ne[1];
    int d = (int)a.q.ne[0], dv = (int)v.ne[0];
    for (int j = threadIdx.x; j < 32 * LONG / 4; j += blockDim.x) {
        int key = j / (LONG / 4), i = j % (LONG / 4) * 4;
        i64 at = first + key < keys ? first + key : keys - 1;
        Four one = {}, two = {};
        const char *key_row = key_rows + at * k.nb[1], *value_row = value_rows + at * v.nb[1];
        if (TYPE != ANY) {
            // Beyond the row there is nothing but what its products with nothing are.
            one = load4_at(key_row, TYPE, i < d ? i : 0);
            two = load4_at(value_row, TYPE, i < dv ? i : 0);
        } else {
            for (int e = 0; e < 4; e++) {
                if (i + e < d) one.x[e] = load_at(key_row, k.dtype, k.nb[0], i + e);
                if (i + e < dv) two.x[e] = load_at(value_row, v.dtype, v.nb[0], i + e);
            }
        }
        *(float4 *)(keys_here + key * STEP + i) = make_float4(one.x[0], one.x[1], one.x[2], one.x[3]);
        *(float4 *)(values_here + key * STEP + i) = make_float4(two.x[0], two.x[1], two.x[2], two.x[3]);
    }
}

// Many queries that share their keys: 16 of them in a block, four in each warp, and 32 keys at a time. Scores: a lane has a
// key. Values: a lane has four elements. Rows have at most 128 elements.
// Blocks: pieces of queries, groups, outer.
template <int TYPE> __device__ void attend_tile(const AttentionParams &a) {
    extern __shared__ float4 memory[];
    float *queries = (float *)memory, *keys_here = queries + QUERIES * STEP, *values_here = keys_here + 32 * STEP;
    const Tensor &q = a.q, &k = a.k, &v = a.v, &mask = a.mask;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 group = a.group, all = a.queries, first_query = (i64)blockIdx.x * QUERIES, outer = blockIdx.z;
    i64 first_head = (i64)blockIdx.y * group, heads = q.ne[2], keys = k.ne[1];
    int d = (int)q.ne[0], dv = (int)v.ne[0];
    const char *key_rows = k.data + first_head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.data + first_head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    // The heads of a token follow one another. Those beyond the last are done twice.
    auto query_of = [&](int i) { return first_query + i < all ? first_query + i : all - 1; };
    for (int j = threadIdx.x; j < QUERIES * LONG; j += blockDim.x) {
        i64 number = query_of(j / LONG), head = first_head + number % group, token = number / group;
        int i = j % LONG;
        const char *row = q.data + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
        queries[j / LONG * STEP + i] = i < d ? load(row + i * q.nb[0], q.dtype) * a.scale : 0;
    }
    float most[4], total[4], sums[4][4], slopes[4], softcap = a.softcap;
    const char *hide[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        i64 number = query_of(warp * 4 + n), head = first_head + number % group, token = number / group;
        most[n] = -INFINITE, total[n] = 0, slopes[n] = 1;
        hide[n] = 0;
        if (mask.data) {
            hide[n] = mask.data + token * mask.nb[1] + head % mask.ne[2] * mask.nb[2] + outer % mask.ne[3] * mask.nb[3];
            slopes[n] = slope_of(head, heads, a.max_bias);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) sums[n][e] = 0;
    }
    for (i64 first = 0; first < keys; first += 32) {
        __syncthreads();
        load_tile<TYPE>(a, key_rows, value_rows, first, keys_here, values_here);
        __syncthreads();
        float scores[4] = {};
        for (int i = 0; i < d; i += 4) {
            float4 y = *(const float4 *)(keys_here + lane * STEP + i);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float4 x = *(const float4 *)(queries + (warp * 4 + n) * STEP + i);
                scores[n] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            bool is_seen = first + lane < keys;
            float score = softcap != 0 ? softcap * tanhf(scores[n]) : scores[n];
            if (hide[n] && is_seen) {
                float hidden = load(hide[n] + (first + lane) * mask.nb[0], mask.dtype);
                is_seen = hidden != -INFINITE;
                score = __fadd_rn(score, __fmul_rn(slopes[n], hidden));
            }
            score = is_seen ? score : -INFINITE;
            scores[n] = weight_of(score, most[n], total[n], sums[n]);
        }
        for (int key = 0; key < 32; key++) {
            float4 y = *(const float4 *)(values_here + key * STEP + lane * 4);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float weight = __shfl_sync(ALL, scores[n], key);
                // What is hidden must not reach the sum, and zero times infinity would.
                if (weight == 0) continue;
                sums[n][0] += weight * y.x;
                sums[n][1] += weight * y.y;
                sums[n][2] += weight * y.z;
                sums[n][3] += weight * y.w;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        if (first_query + warp * 4 + n >= all) continue;
        i64 number = first_query + warp * 4 + n, head = first_head + number % group, token = number / group;
        float factor = factor_of(a, head, most[n], warp_sum(total[n]));
        char *to = a.result.data + head * a.result.nb[1] + token * a.result.nb[2] + outer * a.result.nb[3];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = lane * 4 + e;
            if (i < dv) *(float *)(to + i * a.result.nb[0]) = sums[n][e] * factor;
        }
    }
}

KERNEL(attend_tile)(const AttentionParams &a) { attend_tile<ANY>(a); }
KERNEL(attend_tile_f16)(const AttentionParams &a) { attend_tile<F16>(a); }
KERNEL(attend_tile_bf16)(const AttentionParams &a) { attend_tile<BF16>(a); }

// Puts together what the warps of a block have found about four queries, as a part of each.
__device__ __forceinline__ void store_few(
    const AttentionParams &a, const SoFar (*ends)[4], const float (*sums_here)[4][LONG], i64 first_query, i64 first_head,
    i64 outer, i64 part
) {
    const Tensor &q = a.q;
    i64 group = a.group, all = a.queries, parts = a.parts, heads = q.ne[2];
    int dv = (int)a.v.ne[0];
    for (int n = 0; n < 4 && first_query + n < all; n++) {
        float larger = -INFINITE, sum = 0, factors[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++) larger = ends[w][n].most > larger ? ends[w][n].most : larger;
        float base = larger == -INFINITE ? 0 : larger;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            factors[w] = expf(ends[w][n].most - base);
            sum += factors[w] * ends[w][n].total;
        }
        u64 number = ((u64)outer * heads + first_head + (first_query + n) % group) * q.ne[1] + (first_query + n) / group;
        float *partial = a.partial + (number * parts + part) * (dv + 2);
        if (threadIdx.x == 0) partial[0] = larger, partial[1] = sum;
        for (int i = threadIdx.x; i < dv; i += blockDim.x) {
            float out = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) out += factors[w] != 0 ? factors[w] * sums_here[w][n][i] : 0;
            partial[2 + i] = out;
        }
    }
}

// A few queries that share their keys, and many keys: four queries in a block, and each warp takes every fourth tile of 32
// keys. Scores: a lane has a key, and reads all of its row. Values: a lane has four elements. What each block has found is put
// together by `attend_parts`. Rows are of one type, have at most 128 elements, and start at multiples of 16 bytes.
// Blocks: pieces of four queries, groups, outer times parts.
template <int TYPE> __device__ void attend_few(const AttentionParams &a) {
    __shared__ float queries[4][LONG], sums_here[WARPS][4][LONG];
    __shared__ SoFar ends[WARPS][4];
    const Tensor &q = a.q, &k = a.k, &v = a.v, &mask = a.mask;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, d = (int)q.ne[0], dv = (int)v.ne[0];
    i64 group = a.group, all = a.queries, parts = a.parts, part = blockIdx.z % parts, outer = blockIdx.z / parts;
    i64 first_query = (i64)blockIdx.x * 4, first_head = (i64)blockIdx.y * group, heads = q.ne[2], keys = k.ne[1];
    // Whole tiles for each part.
    i64 share = ((keys + 31) / 32 + parts - 1) / parts * 32;
    i64 begin = part * share, end = begin + share < keys ? begin + share : keys;
    const char *key_rows = k.data + first_head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.data + first_head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    i64 head[4], token[4];
    const char *hide[4];
    float slopes[4], softcap = a.softcap;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        // Those beyond the last are done twice.
        i64 number = first_query + n < all ? first_query + n : all - 1;
        head[n] = first_head + number % group, token[n] = number / group;
        const char *row = q.data + token[n] * q.nb[1] + head[n] * q.nb[2] + outer * q.nb[3];
        for (int i = threadIdx.x; i < LONG; i += blockDim.x) {
            queries[n][i] = i < d ? load(row + i * q.nb[0], q.dtype) * a.scale : 0;
        }
        hide[n] = 0, slopes[n] = 1;
        if (mask.data) {
            hide[n] = mask.data + token[n] * mask.nb[1] + head[n] % mask.ne[2] * mask.nb[2] + outer % mask.ne[3] * mask.nb[3];
            slopes[n] = slope_of(head[n], heads, a.max_bias);
        }
    }
    __syncthreads();
    float most[4], total[4], sums[4][4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        most[n] = -INFINITE, total[n] = 0;
#pragma unroll
        for (int e = 0; e < 4; e++) sums[n][e] = 0;
    }
    for (i64 first = begin + warp * 32; first < end; first += WARPS * 32) {
        float scores[4] = {};
        i64 mine = first + lane < end ? first + lane : end - 1;
        const char *key_row = key_rows + mine * k.nb[1];
#pragma unroll 4
        for (int i = 0; i < d; i += 8) {
            uint4 bits = *(const uint4 *)(key_row + i * 2);
            u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
            float y[8];
#pragma unroll
            for (int e = 0; e < 8; e++) {
                u16 half = (u16)(words[e / 2] >> (e % 2 * 16));
                y[e] = TYPE == F16 ? from_f16(half) : from_bf16(half);
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float4 one = *(const float4 *)(queries[n] + i), two = *(const float4 *)(queries[n] + i + 4);
                scores[n] += one.x * y[0] + one.y * y[1] + one.z * y[2] + one.w * y[3];
                scores[n] += two.x * y[4] + two.y * y[5] + two.z * y[6] + two.w * y[7];
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            bool is_seen = first + lane < end;
            float score = softcap != 0 ? softcap * tanhf(scores[n]) : scores[n];
            if (hide[n]) {
                float hidden = load(hide[n] + mine * mask.nb[0], mask.dtype);
                is_seen = is_seen && hidden != -INFINITE;
                score = __fadd_rn(score, __fmul_rn(slopes[n], hidden));
            }
            score = is_seen ? score : -INFINITE;
            scores[n] = weight_of(score, most[n], total[n], sums[n]);
        }
        int count = end - first < 32 ? (int)(end - first) : 32, column = lane * 4 < dv ? lane * 4 : 0;
#pragma unroll 8
        for (int key = 0; key < 32; key++) {
            i64 at = first + (key < count ? key : count - 1);
            Four y = load4(value_rows + at * v.nb[1] + column * 2, TYPE);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float weight = __shfl_sync(ALL, scores[n], key);
                // What is hidden must not reach the sum, and zero times infinity would.
#pragma unroll
                for (int e = 0; e < 4; e++) sums[n][e] += weight != 0 ? weight * y.x[e] : 0;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float sum = warp_sum(total[n]);
        if (lane == 0) ends[warp][n] = SoFar{most[n], sum};
#pragma unroll
        for (int e = 0; e < 4; e++) sums_here[warp][n][lane * 4 + e] = sums[n][e];
    }
    __syncthreads();
    store_few(a, ends, sums_here, first_query, first_head, outer, part);
}

KERNEL(attend_few_f16)(const AttentionParams &a) { attend_few<F16>(a); }
KERNEL(attend_few_bf16)(const AttentionParams &a) { attend_few<BF16>(a); }

// Looks at the mask for `attend_many`.
// Blocks: tiles times blocks of queries, groups, outer; one for all where the mask is the same.
KERNEL(attend_look)(const MaskParams &a) {
    __shared__ u32 seen[2];
    const Tensor &mask = a.mask;
    u32 group = (u32)a.group, all = (u32)a.queries, tiles = (u32)a.tiles, size = (u32)a.tile_keys, column = threadIdx.x % size;
    u32 tile = blockIdx.x % tiles, block = blockIdx.x / tiles, queries = (u32)a.block_queries;
    u32 first = block * queries, last = all - first < queries ? all - 1 : first + queries - 1;
    i64 key = (i64)tile * size + column;
    const char *plane = mask.data + key * mask.nb[0] + blockIdx.z % (u32)mask.ne[3] * mask.nb[3];
    bool is_seen = false, is_zero = true;
    if (threadIdx.x < 2) seen[threadIdx.x] = 0;
    __syncthreads();
    auto look = [&](const char *at) {
        float hidden = load(at, mask.dtype);
        is_seen |= hidden != -INFINITE;
        is_zero &= hidden == 0;
    };
    u32 start = threadIdx.x / size, step = blockDim.x / size;
    if (key >= a.keys) {
        // There is no such key.
    } else if (mask.ne[2] == 1) {
        // All heads have the same mask.
#pragma unroll 8
        for (u32 token = first / group + start; token <= last / group; token += step) look(plane + token * mask.nb[1]);
    } else {
        for (u32 n = first + start; n <= last; n += step) {
            u32 head = blockIdx.y * group + n % group;
            look(plane + n / group * mask.nb[1] + head % (u32)mask.ne[2] * mask.nb[2]);
        }
    }
    u32 bits = __ballot_sync(ALL, is_seen);
    if (threadIdx.x % 32 == 0) atomicOr(&seen[column / 32], bits);
    is_zero = __syncthreads_and(is_zero);
    if (threadIdx.x == 0) {
        u64 at = ((u64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        a.tile_masks[at] = TileMask{seen[0] | (u64)seen[1] << 32, is_zero};
    }
}
