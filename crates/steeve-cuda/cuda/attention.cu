// Attention in one step (Milakov and Gimelshein 2018; Dao et al. 2022): scores exist in registers only.
//
// A block does a query, or a part of its keys: each of its four warps takes every fourth piece of a few keys, and what they
// have found is put together at the end. Where there are few queries, several blocks share the keys of one, and another
// kernel puts their parts together.

struct SoFar {
    float most, total;
};

#define WARPS 4

// The elements of a row that a lane has: R side by side. What is beyond the row is not read.
// With a type that is known to the compiler it stands in fours, and all reads are on their way before anything is used.
template <int TYPE, int R>
__device__ void read_row(const char *row, const Tensor &t, int lane, int length, i64 in_fours, float *x) {
#pragma unroll
    for (int r = 0; r < R; r += 4) {
        int i = lane * R + r;
        if (TYPE != OTHER || in_fours) {
            // Lanes beyond the row read its start.
            Four four = load4_at(row, TYPE != OTHER ? TYPE : t.type, i < length ? i : 0);
#pragma unroll
            for (int e = 0; e < 4; e++) x[r + e] = four.x[e];
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++) x[r + e] = i + e < length ? load_at(row, t.type, t.nb[0], i + e) : 0;
        }
    }
}

// Slots: queries, keys, values, mask, sinks. i: parts, address of their results, keys aligned, values aligned.
// f: scale, softcap, bias. Blocks: tokens, heads, outer times parts.
template <int TYPE, int R, int AHEAD> __device__ void attend(const Args &a) {
    __shared__ SoFar ends[WARPS];
    __shared__ float sums[WARPS][R * 32];
    const Tensor &q = a.s[0], &k = a.s[1], &v = a.s[2], &mask = a.s[3];
    i64 token = blockIdx.x, head = blockIdx.y, parts = a.i[0];
    i64 part = blockIdx.z % parts, outer = blockIdx.z / parts;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 d = q.ne[0], dv = v.ne[0], keys = k.ne[1], heads = q.ne[2];
    i64 share = (keys + parts - 1) / parts;
    i64 first = part * share, last = first + share < keys ? first + share : keys;
    const char *query = q.p + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
    const char *key_rows = k.p + head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.p + head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    const char *hide = 0;
    float slope = 1, softcap = a.f[1];
    if (mask.p) {
        hide = mask.p + token * mask.nb[1] + head % mask.ne[2] * mask.nb[2] + outer % mask.ne[3] * mask.nb[3];
        slope = slope_of(head, heads, a.f[2]);
    }
    float x[R], sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = lane * R + r;
        x[r] = i < d ? load(query + i * q.nb[0], q.type) : 0;
        sum[r] = 0;
    }
    SoFar so_far = {-INFINITE, 0};
    for (i64 key = first + warp * AHEAD; key < last; key += WARPS * AHEAD) {
        float scores[AHEAD], keys_read[AHEAD][R], values_read[AHEAD][R];
        // Each lane looks at the mask for one of the keys.
        float masked = hide && lane < AHEAD && key + lane < last ? load(hide + (key + lane) * mask.nb[0], mask.type) : 0;
        // All is on its way before anything is used. What is hidden may be read, but is not looked at: nobody may have
        // written it.
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            i64 at = key + j < last ? key + j : last - 1;
            read_row<TYPE, R>(key_rows + at * k.nb[1], k, lane, (int)d, a.i[2], keys_read[j]);
            read_row<TYPE, R>(value_rows + at * v.nb[1], v, lane, (int)dv, a.i[3], values_read[j]);
        }
        float most = so_far.most;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            float score = 0;
#pragma unroll
            for (int r = 0; r < R; r++) score += lane * R + r < d ? x[r] * keys_read[j][r] : 0;
            score = warp_sum(score) * a.f[0];
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
    float most = -INFINITE, total = 0, factors[WARPS];
    for (int w = 0; w < WARPS; w++) most = ends[w].most > most ? ends[w].most : most;
    bool with_sink = parts == 1 && a.s[4].p;
    float sink = with_sink ? *(const float *)(a.s[4].p + head * a.s[4].nb[0]) : -INFINITE;
    most = sink > most ? sink : most;
    float base = most == -INFINITE ? 0 : most;
    for (int w = 0; w < WARPS; w++) {
        factors[w] = expf(ends[w].most - base);
        total += factors[w] * ends[w].total;
    }
    if (with_sink) total += expf(sink - base);
    char *to = a.r.p + head * a.r.nb[1] + token * a.r.nb[2] + outer * a.r.nb[3];
    u64 number = ((u64)outer * gridDim.y + head) * gridDim.x + token;
    float *partial = (float *)a.i[1] + (number * parts + part) * (dv + 2);
    if (parts > 1 && threadIdx.x == 0) partial[0] = most, partial[1] = total;
    float factor = total == 0 ? 0 : 1 / total;
    for (i64 i = threadIdx.x; i < dv; i += blockDim.x) {
        float out = 0;
        for (int w = 0; w < WARPS; w++) {
            if (factors[w] != 0) out += factors[w] * sums[w][i];
        }
        if (parts > 1) partial[2 + i] = out;
        else *(float *)(to + i * a.r.nb[0]) = out * factor;
    }
}

// Of any types, and of one type in fours.
#define ATTEND(R, AHEAD)                                                          \
    KERNEL(attend_##R)(ARGS) { attend<OTHER, R, AHEAD>(a); }                      \
    KERNEL(attend_##R##_f16)(ARGS) { attend<F16, R, AHEAD>(a); }                  \
    KERNEL(attend_##R##_bf16)(ARGS) { attend<BF16, R, AHEAD>(a); }                \
    KERNEL(attend_##R##_q8_0)(ARGS) { attend<Q8_0, R, AHEAD>(a); }

ATTEND(4, 8)
ATTEND(8, 4)
ATTEND(16, 2)

#define MOST_PARTS 64

// Puts the parts of each query together. Blocks: tokens, heads, outer.
KERNEL(attend_parts)(ARGS) {
    __shared__ float factors[MOST_PARTS];
    i64 token = blockIdx.x, head = blockIdx.y, outer = blockIdx.z, dv = a.s[2].ne[0];
    int parts = (int)a.i[0], lane = threadIdx.x % 32;
    u64 number = ((u64)outer * gridDim.y + head) * gridDim.x + token;
    const float *partial = (const float *)a.i[1] + number * parts * (dv + 2);
    float sink = a.s[4].p ? *(const float *)(a.s[4].p + head * a.s[4].nb[0]) : -INFINITE;
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
    if (a.s[4].p) total += expf(sink - base);
    __syncthreads();
    float factor = total == 0 ? 0 : 1 / total;
    char *to = a.r.p + head * a.r.nb[1] + token * a.r.nb[2] + outer * a.r.nb[3];
    for (i64 i = threadIdx.x; i < dv; i += blockDim.x) {
        float out = 0;
#pragma unroll 8
        for (int p = 0; p < parts; p++) {
            float value = partial[p * (dv + 2) + 2 + i];
            out += factors[p] != 0 ? factors[p] * value : 0;
        }
        *(float *)(to + i * a.r.nb[0]) = out * factor;
    }
}

// What the sums of a query are multiplied by in the end. A sink is one more score, with no value.
__device__ float factor_of(const Args &a, i64 head, float most, float total) {
    if (!a.s[4].p) return total == 0 ? 0 : 1 / total;
    float sink = *(const float *)(a.s[4].p + head * a.s[4].nb[0]);
    float larger = sink > most ? sink : most, base = larger == -INFINITE ? 0 : larger;
    float grown = expf(most - base);
    total = total * grown + expf(sink - base);
    return total == 0 ? 0 : grown / total;
}

#define QUERIES 16
#define LONG 128
#define STEP (LONG + 4)

// Many queries that share their keys: 16 of them in a block, four in each warp, and 32 keys at a time. Scores: a lane has a
// key. Values: a lane has four elements. Rows have at most 128 elements.
// i: as above; 4: how many heads share their keys, 5: queries of a group. Blocks: pieces of queries, groups, outer.
template <int TYPE> __device__ void attend_tile(const Args &a) {
    extern __shared__ float4 memory[];
    float *queries = (float *)memory, *keys_here = queries + QUERIES * STEP, *values_here = keys_here + 32 * STEP;
    const Tensor &q = a.s[0], &k = a.s[1], &v = a.s[2], &mask = a.s[3];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 group = a.i[4], all = a.i[5], first_query = (i64)blockIdx.x * QUERIES, outer = blockIdx.z;
    i64 first_head = (i64)blockIdx.y * group, heads = q.ne[2], keys = k.ne[1];
    int d = (int)q.ne[0], dv = (int)v.ne[0];
    const char *key_rows = k.p + first_head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.p + first_head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    // The heads of a token follow one another. Those beyond the last are done twice.
    auto query_of = [&](int i) { return first_query + i < all ? first_query + i : all - 1; };
    for (int j = threadIdx.x; j < QUERIES * LONG; j += blockDim.x) {
        i64 number = query_of(j / LONG), head = first_head + number % group, token = number / group;
        int i = j % LONG;
        const char *row = q.p + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
        queries[j / LONG * STEP + i] = i < d ? load(row + i * q.nb[0], q.type) * a.f[0] : 0;
    }
    float most[4], total[4], sums[4][4], slopes[4], softcap = a.f[1];
    const char *hide[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        i64 number = query_of(warp * 4 + n), head = first_head + number % group, token = number / group;
        most[n] = -INFINITE, total[n] = 0, slopes[n] = 1;
        hide[n] = 0;
        if (mask.p) {
            hide[n] = mask.p + token * mask.nb[1] + head % mask.ne[2] * mask.nb[2] + outer % mask.ne[3] * mask.nb[3];
            slopes[n] = slope_of(head, heads, a.f[2]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) sums[n][e] = 0;
    }
    for (i64 first = 0; first < keys; first += 32) {
        __syncthreads();
        for (int j = threadIdx.x; j < 32 * LONG / 4; j += blockDim.x) {
            int key = j / (LONG / 4), i = j % (LONG / 4) * 4;
            i64 at = first + key < keys ? first + key : keys - 1;
            Four one = {}, two = {};
            const char *key_row = key_rows + at * k.nb[1], *value_row = value_rows + at * v.nb[1];
            if (TYPE != OTHER) {
                // Beyond the row there is nothing but what its products with nothing are.
                one = load4_at(key_row, TYPE, i < d ? i : 0);
                two = load4_at(value_row, TYPE, i < dv ? i : 0);
            } else {
                for (int e = 0; e < 4; e++) {
                    if (i + e < d) one.x[e] = load_at(key_row, k.type, k.nb[0], i + e);
                    if (i + e < dv) two.x[e] = load_at(value_row, v.type, v.nb[0], i + e);
                }
            }
            *(float4 *)(keys_here + key * STEP + i) = make_float4(one.x[0], one.x[1], one.x[2], one.x[3]);
            *(float4 *)(values_here + key * STEP + i) = make_float4(two.x[0], two.x[1], two.x[2], two.x[3]);
        }
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
                float hidden = load(hide[n] + (first + lane) * mask.nb[0], mask.type);
                is_seen = hidden != -INFINITE;
                score = __fadd_rn(score, __fmul_rn(slopes[n], hidden));
            }
            score = is_seen ? score : -INFINITE;
            float larger = warp_max(score);
            larger = larger > most[n] ? larger : most[n];
            float base = larger == -INFINITE ? 0 : larger;
            if (larger != most[n]) {
                float grown = expf(most[n] - base);
                total[n] *= grown;
#pragma unroll
                for (int e = 0; e < 4; e++) sums[n][e] *= grown;
                most[n] = larger;
            }
            scores[n] = expf(score - base);
            total[n] += scores[n];
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
        char *to = a.r.p + head * a.r.nb[1] + token * a.r.nb[2] + outer * a.r.nb[3];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = lane * 4 + e;
            if (i < dv) *(float *)(to + i * a.r.nb[0]) = sums[n][e] * factor;
        }
    }
}

KERNEL(attend_tile)(ARGS) { attend_tile<OTHER>(a); }
KERNEL(attend_tile_f16)(ARGS) { attend_tile<F16>(a); }
KERNEL(attend_tile_bf16)(ARGS) { attend_tile<BF16>(a); }

// A few queries that share their keys, and many keys: four queries in a block, and each warp takes every fourth tile of 32
// keys. Scores: a lane has a key, and reads all of its row. Values: a lane has four elements. What each block has found is put
// together by `attend_parts`. Rows are of one type, have at most 128 elements, and stand at multiples of 16 bytes.
// i: as above. Blocks: pieces of four queries, groups, outer times parts.
template <int TYPE> __device__ void attend_few(const Args &a) {
    __shared__ float queries[4][LONG], sums_here[WARPS][4][LONG];
    __shared__ SoFar ends[WARPS][4];
    const Tensor &q = a.s[0], &k = a.s[1], &v = a.s[2], &mask = a.s[3];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, d = (int)q.ne[0], dv = (int)v.ne[0];
    i64 group = a.i[4], all = a.i[5], parts = a.i[0], part = blockIdx.z % parts, outer = blockIdx.z / parts;
    i64 first_query = (i64)blockIdx.x * 4, first_head = (i64)blockIdx.y * group, heads = q.ne[2], keys = k.ne[1];
    // Whole tiles for each part.
    i64 share = ((keys + 31) / 32 + parts - 1) / parts * 32;
    i64 begin = part * share, end = begin + share < keys ? begin + share : keys;
    const char *key_rows = k.p + first_head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.p + first_head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    i64 head[4], token[4];
    const char *hide[4];
    float slopes[4], softcap = a.f[1];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        // Those beyond the last are done twice.
        i64 number = first_query + n < all ? first_query + n : all - 1;
        head[n] = first_head + number % group, token[n] = number / group;
        const char *row = q.p + token[n] * q.nb[1] + head[n] * q.nb[2] + outer * q.nb[3];
        for (int i = threadIdx.x; i < LONG; i += blockDim.x) {
            queries[n][i] = i < d ? load(row + i * q.nb[0], q.type) * a.f[0] : 0;
        }
        hide[n] = 0, slopes[n] = 1;
        if (mask.p) {
            hide[n] = mask.p + token[n] * mask.nb[1] + head[n] % mask.ne[2] * mask.nb[2] + outer % mask.ne[3] * mask.nb[3];
            slopes[n] = slope_of(head[n], heads, a.f[2]);
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
                float hidden = load(hide[n] + mine * mask.nb[0], mask.type);
                is_seen = is_seen && hidden != -INFINITE;
                score = __fadd_rn(score, __fmul_rn(slopes[n], hidden));
            }
            score = is_seen ? score : -INFINITE;
            float larger = warp_max(score);
            larger = larger > most[n] ? larger : most[n];
            float base = larger == -INFINITE ? 0 : larger;
            if (larger != most[n]) {
                float grown = expf(most[n] - base);
                total[n] *= grown;
#pragma unroll
                for (int e = 0; e < 4; e++) sums[n][e] *= grown;
                most[n] = larger;
            }
            scores[n] = expf(score - base);
            total[n] += scores[n];
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
        float *partial = (float *)a.i[1] + (number * parts + part) * (dv + 2);
        if (threadIdx.x == 0) partial[0] = larger, partial[1] = sum;
        for (int i = threadIdx.x; i < dv; i += blockDim.x) {
            float out = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) out += factors[w] != 0 ? factors[w] * sums_here[w][n][i] : 0;
            partial[2 + i] = out;
        }
    }
}

KERNEL(attend_few_f16)(ARGS) { attend_few<F16>(a); }
KERNEL(attend_few_bf16)(ARGS) { attend_few<BF16>(a); }

// Many queries with tensor cores: 16 of them in each warp, and a tile of 64 or 32 keys at a time (Dao 2023).
//
// Products are of the type of the keys, and sums are f32. Nothing is lost by that: queries and weights go in as sums of
// two numbers of f16 or three of bf16, which hold as many digits as one of f32. Queries are first multiplied by a power of
// two and weights by 2^7, so that their second parts are not too small for f16 either.
//
//   lane 4g + c of a warp has of a product's 16 x 8 elements:      row g: columns 2c, 2c + 1; row g + 8: the same
//   of its left factor, 16 x 16:                                  those, and those 8 columns further
//   of its right one, 16 x 8:                                     column g: rows 2c, 2c + 1, and those 8 rows further
//
// So weights become a left factor where they are. Keys and values come into shared memory ahead of time, in three rooms:
//
//   room 0  | keys 0     | values 1   | keys 3  ...
//   room 1  | values 0      | keys 2     |
//   room 2  |    | keys 1      | values 2   |
//
// Before all this `attend_look` has looked at the mask: tiles that nobody sees are not read, nor are keys that nobody sees
// in a tile that somebody does, and tiles with nothing but zeros need no mask.

#define MANY_THREADS 128

// What is known about a tile of keys and a block of queries: which keys somebody sees, and whether the mask is all zeros.
struct Look {
    u64 seen, zeros;
};

// The mask's row for a query.
__device__ const char *mask_row(const Tensor &mask, u32 token, u32 head, u32 outer) {
    return mask.p + token * mask.nb[1] + head % (u32)mask.ne[2] * mask.nb[2] + outer % (u32)mask.ne[3] * mask.nb[3];
}

// i: 4: how many heads share their keys, 5: queries of a group, 6: keys of a tile, 7: queries of a block, 8: address of the
// results, 9: number of tiles. Blocks: tiles times blocks of queries, groups, outer; one for all where the mask is the same.
KERNEL(attend_look)(ARGS) {
    __shared__ u32 seen[2];
    const Tensor &mask = a.s[3];
    u32 group = (u32)a.i[4], all = (u32)a.i[5], tiles = (u32)a.i[9], size = (u32)a.i[6], column = threadIdx.x % size;
    u32 tile = blockIdx.x % tiles, block = blockIdx.x / tiles, queries = (u32)a.i[7];
    u32 first = block * queries, last = all - first < queries ? all - 1 : first + queries - 1;
    i64 key = (i64)tile * size + column;
    const char *plane = mask.p + key * mask.nb[0] + blockIdx.z % (u32)mask.ne[3] * mask.nb[3];
    bool is_seen = false, is_zero = true;
    if (threadIdx.x < 2) seen[threadIdx.x] = 0;
    __syncthreads();
    auto look = [&](const char *at) {
        float hidden = load(at, mask.type);
        is_seen |= hidden != -INFINITE;
        is_zero &= hidden == 0;
    };
    u32 start = threadIdx.x / size, step = blockDim.x / size;
    if (key >= a.s[1].ne[1]) {
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
        ((Look *)a.i[8])[at] = Look{seen[0] | (u64)seen[1] << 32, is_zero};
    }
}

#if __CUDA_ARCH__ >= 800

// Two numbers side by side, the first of them in the lower half.
template <int TYPE> __device__ u32 pair_of(float x, float y) {
    u32 pair;
    if (TYPE == F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}

// Pairs whose sums are these two numbers.
template <int TYPE, int PARTS> __device__ void split(float x, float y, u32 *pairs, int step) {
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        u32 pair = pair_of<TYPE>(x, y);
        u16 low = (u16)pair, high = (u16)(pair >> 16);
        x -= TYPE == F16 ? from_f16(low) : from_bf16(low);
        y -= TYPE == F16 ? from_f16(high) : from_bf16(high);
        pairs[p * step] = pair;
    }
}

// c += a b, of 16 x 16 and 16 x 8 elements.
template <int TYPE> __device__ void multiply(float *c, const u32 *a, const u32 *b) {
    if (TYPE == F16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

// Four pieces of 8 rows of 16 bytes; lanes 8j to 8j + 7 say where the rows of piece j are. Lane 4g + c gets elements 2c and
// 2c + 1 of row g.
__device__ void fetch(u32 *x, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

// The same of each piece with rows and columns exchanged.
__device__ void fetch_turned(u32 *x, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

__device__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for all but the last copies.
__device__ void arrive() {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

__device__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ float largest(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

// Starts copying the keys of a tile that somebody sees into shared memory, with zeros for the others: so nothing that is
// hidden from all meets a weight of zero. Pieces of 16 bytes change places within a row, so that eight rows of them are in
// different banks.
template <int N, int PITCH, int PIECES>
__device__ void copy_rows(u32 to, const char *rows, i64 step, int length, int tile, u64 seen) {
    const int ACROSS = PITCH / 16, DOWN = MANY_THREADS / ACROSS;
    int piece = threadIdx.x % ACROSS, first = threadIdx.x / ACROSS;
    if (piece >= PIECES) return;
    const char *from = rows + ((i64)tile * N + first) * step + piece * 16;
    bool is_inside = piece * 8 < length;
    if (is_inside && seen == ~0ull >> (64 - N)) {
#pragma unroll
        for (int n = 0; n < N / DOWN; n++) {
            int row = first + n * DOWN;
            u32 at = to + row * PITCH + ((piece ^ (row & 7)) << 4);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
            from += DOWN * step;
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < N / DOWN; n++) {
        int row = first + n * DOWN;
        bool is_read = is_inside && (seen >> row & 1);
        u32 at = to + row * PITCH + ((piece ^ (row & 7)) << 4);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(is_read ? from : rows), "r"(is_read ? 16 : 0)
                     : "memory");
        from += DOWN * step;
    }
}

// The tiles that somebody sees, in order. Each lane has looked at one of 32.
template <int N> struct Tiles {
    const Look *looks;
    i64 keys;
    int base, end;
    u32 left, plain;
    u64 mine;

    __device__ void look() {
        int tile = base + (int)(threadIdx.x % 32);
        i64 count = keys - (i64)tile * N;
        bool is_plain = count >= N;
        mine = 0;
        if (tile < end) {
            mine = count >= 64 ? ~0ull : (1ull << count) - 1;
            if (N == 32) mine = (u32)mine;
            if (looks) {
                Look look = looks[tile];
                mine &= look.seen;
                is_plain = is_plain && look.zeros;
            }
        }
        left = __ballot_sync(ALL, mine != 0);
        plain = __ballot_sync(ALL, is_plain);
    }

    // The number of the next one; less than zero behind the last.
    __device__ int next(u64 &seen, bool &is_plain) {
        while (left == 0) {
            base += 32;
            if (base >= end) return -1;
            look();
        }
        int j = __ffs(left) - 1;
        left &= left - 1;
        seen = __shfl_sync(ALL, mine, j);
        is_plain = plain >> j & 1;
        return base + j;
    }
};

__device__ bool is_aligned(const Tensor &t, u64 size) {
    return (((u64)t.p | (u64)t.nb[1] | (u64)t.nb[2] | (u64)t.nb[3]) & (size - 1)) == 0;
}

// One query in a warp, with nothing but sums of what it sees: for those whose sums are no numbers, because some key or value
// that another query sees is none, or since that is how it is. Columns `from` to `to` are written.
template <int TYPE, int R>
__device__ void attend_alone(
    const Args &a, i64 token, i64 head, i64 outer, float slope, i64 first, i64 last, i64 part, int from, int to
) {
    const Tensor &q = a.s[0], &k = a.s[1], &v = a.s[2], &mask = a.s[3];
    int lane = threadIdx.x % 32, d = (int)q.ne[0], dv = (int)v.ne[0];
    i64 heads = q.ne[2], parts = a.i[0];
    const char *query = q.p + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
    const char *key_rows = k.p + head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.p + head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    const char *hide = mask.p ? mask_row(mask, (u32)token, (u32)head, (u32)outer) : 0;
    float softcap = a.f[1], most = -INFINITE, total = 0, x[R], sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = lane * R + r;
        x[r] = i < d ? load(query + i * q.nb[0], q.type) * a.f[0] : 0;
        sum[r] = 0;
    }
#pragma unroll 1
    for (i64 key = first; key < last; key++) {
        float hidden = hide ? load(hide + key * mask.nb[0], mask.type) : 0, y[R], score = 0;
        if (hidden == -INFINITE) continue;
        read_row<TYPE, R>(key_rows + key * k.nb[1], k, lane, d, 1, y);
#pragma unroll
        for (int r = 0; r < R; r++) score += lane * R + r < d ? x[r] * y[r] : 0;
        score = warp_sum(score);
        if (softcap != 0) score = softcap * tanhf(score);
        if (hide) score = __fadd_rn(score, __fmul_rn(slope, hidden));
        float larger = score > most ? score : most, base = larger == -INFINITE ? 0 : larger;
        float grown = expf(most - base), weight = expf(score - base);
        most = larger;
        total = total * grown + weight;
        read_row<TYPE, R>(value_rows + key * v.nb[1], v, lane, dv, 1, y);
#pragma unroll
        for (int r = 0; r < R; r++) sum[r] = sum[r] * grown + (weight != 0 ? weight * y[r] : 0);
    }
    u64 number = ((u64)outer * heads + head) * q.ne[1] + token;
    float *partial = (float *)a.i[1] + (number * parts + part) * (dv + 2);
    char *result = a.r.p + head * a.r.nb[1] + token * a.r.nb[2] + outer * a.r.nb[3];
    float factor = parts > 1 ? 1 : factor_of(a, head, most, total);
    if (parts > 1 && lane == 0) partial[0] = most, partial[1] = total;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = lane * R + r;
        if (i < from || i >= to || i >= dv) continue;
        if (parts > 1) partial[2 + i] = sum[r];
        else *(float *)(result + i * a.r.nb[0]) = sum[r] * factor;
    }
}

// A warp has D columns of its queries and of its results. Where rows have twice as many, two warps have the same queries: each
// makes half of the sums of a score.
// i: 0: parts, 1: address of their results, 4, 5, 8, 9: as above. Blocks: groups, queries, outer times parts.
template <int TYPE, int D, int HALVES, int N> __device__ void attend_many(const Args &a) {
    extern __shared__ float4 memory[];
    const int PARTS = TYPE == F16 ? 2 : 3, WHOLE = D * HALVES, PITCH = (WHOLE + 63) / 64 * 128, ROOM = N * PITCH;
    const int ROWS = 16 * WARPS / HALVES;
    const float LOG2E = 1.4426950408889634f, GAIN = TYPE == F16 ? 7 : 0;
    const Tensor &q = a.s[0], &k = a.s[1], &v = a.s[2], &mask = a.s[3];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, column = lane % 4 * 2;
    int d = (int)q.ne[0], dv = (int)v.ne[0], half = warp % HALVES, start = half * D;
    u32 group = (u32)a.i[4], all = (u32)a.i[5], parts = (u32)a.i[0], part = blockIdx.z % parts;
    u32 heads = (u32)q.ne[2], first_head = blockIdx.x * group;
    i64 outer = blockIdx.z / parts, keys = k.ne[1];
    // The last queries see most where a mask is causal, and should not be begun last.
    u32 block = gridDim.y - 1 - blockIdx.y, first_query = block * ROWS + warp / HALVES * 16;
    const char *key_rows = k.p + first_head / (heads / (u32)k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.p + first_head / (heads / (u32)v.ne[2]) * v.nb[2] + outer * v.nb[3];

    // Which tiles are for this block.
    u32 count = (u32)((keys + N - 1) / N), share = (count + parts - 1) / parts;
    Tiles<N> tiles;
    tiles.looks = 0, tiles.keys = keys, tiles.base = (int)(part * share);
    tiles.end = (int)(part * share + share < count ? part * share + share : count);
    if (mask.p) {
        i64 before = mask.ne[3] == 1 ? 0 : outer;
        if (mask.ne[2] != 1) before = before * gridDim.x + blockIdx.x;
        tiles.looks = (const Look *)a.i[8] + (before * gridDim.y + block) * count;
    }
    tiles.look();

    // Where lanes fetch from, but for what is the same in all of them.
    u32 base = (u32)__cvta_generic_to_shared(memory);
    u32 key_room = base, value_room = base + ROOM, free_room = base + 2 * ROOM;
    u32 key_at = (lane / 16 * 8 + lane % 8) * PITCH, key_piece = ((u32)(start / 8 + lane / 8 % 2) ^ lane % 8) << 4;
    u32 value_at = lane % 16 * PITCH, value_piece = ((u32)(start / 8 + lane / 16) ^ lane % 8) << 4;

    u64 seen = 0;
    bool is_plain = false;
    int tile = tiles.next(seen, is_plain);
    if (tile >= 0) copy_rows<N, PITCH, WHOLE / 8>(key_room, key_rows, k.nb[1], d, tile, seen);
    commit();
    if (tile >= 0) copy_rows<N, PITCH, WHOLE / 8>(value_room, value_rows, v.nb[1], dv, tile, seen);
    commit();

    // Those beyond the last are done twice.
    auto query_of = [&](int h) { return first_query + row + 8 * h < all ? first_query + row + 8 * h : all - 1; };
    // Queries, and what undoes their power of two.
    u32 x[D / 16][PARTS * 4];
    float undo[2], slopes[2], softcap = a.f[1];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 number = query_of(h), head = first_head + number % group, token = number / group;
        const char *query = q.p + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
        float raw[D / 8][2], most = 0;
        bool pairs = q.nb[0] == 4 && is_aligned(q, 8);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int i = start + n * 8 + column;
            float2 two = make_float2(0, 0);
            if (i < d) {
                if (pairs) two = *(const float2 *)(query + i * 4);
                else two = make_float2(*(const float *)(query + i * q.nb[0]), *(const float *)(query + (i + 1) * q.nb[0]));
            }
            raw[n][0] = two.x * a.f[0], raw[n][1] = two.y * a.f[0];
            most = fmaxf(most, fmaxf(fabsf(raw[n][0]), fabsf(raw[n][1])));
        }
        most = largest(most);
        float power = 1;
        undo[h] = 1;
        if (TYPE == F16) {
            // The largest becomes one from 2^14 to 2^15.
            int exponent = 268 - (int)(__float_as_uint(most) >> 23);
            exponent = exponent > 253 ? 253 : exponent;
            power = __uint_as_float((u32)exponent << 23);
            undo[h] = __uint_as_float((u32)(254 - exponent) << 23);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            split<TYPE, PARTS>(raw[n][0] * power, raw[n][1] * power, &x[n / 2][n % 2 * 2 + h], 4);
        }
        slopes[h] = mask.p ? slope_of(head, heads, a.f[2]) : 1;
    }

    float most[2] = {-INFINITE, -INFINITE}, total[2] = {0, 0}, out[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) out[n][e] = 0;
    }

    while (tile >= 0) {
        u64 next_seen = 0;
        bool next_plain = false;
        int next = tiles.next(next_seen, next_plain);
        arrive();
        __syncthreads();
        if (next >= 0) copy_rows<N, PITCH, WHOLE / 8>(free_room, key_rows, k.nb[1], d, next, next_seen);
        commit();

        // Scores: queries times keys.
        float s[N / 8][4];
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = 0;
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            u32 from = key_room + key_at + (key_piece ^ i << 5);
#pragma unroll
            for (int n = 0; n < N / 8; n += 4) {
                u32 y[8];
                fetch(y, from + n * 8 * PITCH);
                fetch(y + 4, from + (n + 2) * 8 * PITCH);
#pragma unroll
                for (int p = PARTS - 1; p >= 0; p--) {
#pragma unroll
                    for (int m = 0; m < 4; m++) multiply<TYPE>(s[n + m], &x[i][p * 4], &y[m * 2]);
                }
            }
        }
        float step[2] = {undo[0], undo[1]};
        if (HALVES == 2) {
            // The other half is in the next warp; both are put together where the keys were.
            float4 *mine = (float4 *)((char *)memory + (key_room - base)) + warp * (N / 8) * 32 + lane;
            const float4 *theirs = mine + (half ? -1 : 1) * (N / 8) * 32;
            __syncthreads();
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) s[n][e] *= step[e / 2];
                mine[n * 32] = make_float4(s[n][0], s[n][1], s[n][2], s[n][3]);
            }
            __syncthreads();
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float4 other = theirs[n * 32];
                s[n][0] += other.x, s[n][1] += other.y, s[n][2] += other.z, s[n][3] += other.w;
            }
            step[0] = step[1] = 1;
        }
        if (softcap != 0) {
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) s[n][e] = softcap * tanhf(s[n][e] * step[e / 2]);
            }
            step[0] = step[1] = 1;
        }
        if (!is_plain) {
            bool pairs = mask.p && mask.nb[0] == 2 && keys % 2 == 0 && is_aligned(mask, 4);
            const char *hide[2] = {0, 0};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 number = query_of(h), head = first_head + number % group;
                if (mask.p) hide[h] = mask_row(mask, number / group, head, (u32)outer) + ((i64)tile * N + column) * mask.nb[0];
            }
#pragma unroll
            for (int n = 0; n < N / 8; n += 4) {
                // Two elements for each query and eight keys. All of them are on their way before any is used.
                u32 words[4][2];
#pragma unroll
                for (int m = 0; m < 8; m++) {
                    bool is_read = pairs && seen >> ((n + m / 2) * 8 + column) & 3;
                    words[m / 2][m % 2] = is_read ? *(const u32 *)(hide[m % 2] + (n + m / 2) * 16) : 0;
                }
#pragma unroll
                for (int m = 0; m < 16; m++) {
                    int e = m % 4, i = (n + m / 4) * 8 + e % 2;
                    bool is_seen = seen >> (i + column) & 1;
                    float score = s[n + m / 4][e] * step[e / 2];
                    float hidden = from_f16((u16)(words[m / 4][e / 2] >> (e % 2 * 16)));
                    if (mask.p && !pairs && is_seen) hidden = from_f16(*(const u16 *)(hide[e / 2] + i * mask.nb[0]));
                    if (mask.p) score = __fadd_rn(score, __fmul_rn(slopes[e / 2], hidden));
                    s[n + m / 4][e] = is_seen && hidden != -INFINITE ? score : -INFINITE;
                }
            }
            step[0] = step[1] = 1;
        }

        // Weights, and what all before is multiplied by.
        float grown[2];
        u32 weights[N / 16][PARTS * 4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float larger = -INFINITE;
#pragma unroll
            for (int n = 0; n < N / 8; n++) larger = fmaxf(larger, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
            larger = fmaxf(largest(larger) * step[h], most[h]);
            float less = larger == -INFINITE ? 0 : larger * LOG2E, factor = step[h] * LOG2E, sum = 0;
            grown[h] = power_of_two(fmaf(most[h], LOG2E, -less));
            less = GAIN - less;
            most[h] = larger;
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float one = power_of_two(fmaf(s[n][2 * h], factor, less));
                float two = power_of_two(fmaf(s[n][2 * h + 1], factor, less));
                sum += one + two;
                split<TYPE, PARTS>(one, two, &weights[n / 2][n % 2 * 2 + h], 4);
            }
            total[h] = total[h] * grown[h] + sum;
        }

        arrive();
        __syncthreads();
        if (next >= 0) copy_rows<N, PITCH, WHOLE / 8>(key_room, value_rows, v.nb[1], dv, next, next_seen);
        commit();

        // Sums: weights times values. Those of a tile start from zero: tensor cores cut off what they can't hold, and in a
        // long sum that would add up.
#pragma unroll
        for (int n = 0; n < D / 8; n += 4) {
            float t[4][4];
#pragma unroll
            for (int m = 0; m < 4; m++) {
#pragma unroll
                for (int e = 0; e < 4; e++) t[m][e] = 0;
            }
            u32 from = value_room + value_at, one = from + (value_piece ^ n << 4), two = from + (value_piece ^ (n + 2) << 4);
#pragma unroll
            for (int i = 0; i < N / 16; i++) {
                u32 y[8];
                fetch_turned(y, one + i * 16 * PITCH);
                fetch_turned(y + 4, two + i * 16 * PITCH);
#pragma unroll
                for (int p = PARTS - 1; p >= 0; p--) {
#pragma unroll
                    for (int m = 0; m < 4; m++) multiply<TYPE>(t[m], &weights[i][p * 4], &y[m * 2]);
                }
            }
#pragma unroll
            for (int m = 0; m < 4; m++) {
#pragma unroll
                for (int e = 0; e < 4; e++) out[n + m][e] = fmaf(out[n + m][e], grown[e / 2], t[m][e]);
            }
        }
        u32 room = key_room;
        key_room = free_room, free_room = value_room, value_room = room;
        tile = next, seen = next_seen, is_plain = next_plain;
    }

    u32 bad[2];
    bool pairs = a.r.nb[0] == 4 && is_aligned(a.r, 8);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = total[h];
        sum += __shfl_xor_sync(ALL, sum, 1);
        sum += __shfl_xor_sync(ALL, sum, 2);
        u32 number = first_query + row + 8 * h, head = first_head + number % group, token = number / group;
        float factor = TYPE == F16 ? 1.0f / 128 : 1, check = 0;
        float *partial = (float *)a.i[1] + (((outer * heads + head) * q.ne[1] + token) * parts + part) * (dv + 2) + 2;
        char *result = a.r.p + head * a.r.nb[1] + token * a.r.nb[2] + outer * a.r.nb[3];
        if (number < all) {
            if (parts == 1) factor *= factor_of(a, head, most[h], sum * factor);
            else if (lane % 4 == 0) partial[-2] = most[h], partial[-1] = sum * factor;
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float one = out[n][2 * h] * factor, two = out[n][2 * h + 1] * factor;
            int i = start + n * 8 + column;
            if (number < all && i < dv) {
                check += one * 0 + two * 0;
                if (parts > 1) partial[i] = one, partial[i + 1] = two;
                else if (pairs) *(float2 *)(result + i * 4) = make_float2(one, two);
                else *(float *)(result + i * a.r.nb[0]) = one, *(float *)(result + (i + 1) * a.r.nb[0]) = two;
            }
        }
        bad[h] = __ballot_sync(ALL, !(check == 0));
    }
    // Zero times infinity is not zero: where it was met, each query is done by itself.
#pragma unroll 1
    for (int n = 0; n < 16; n++) {
        float slope = __shfl_sync(ALL, n < 8 ? slopes[0] : slopes[1], n % 8 * 4);
        if (!((n < 8 ? bad[0] : bad[1]) >> (n % 8 * 4) & 15)) continue;
        u32 number = first_query + n, token = number / group, head = first_head + number % group;
        i64 end = (i64)tiles.end * N < keys ? (i64)tiles.end * N : keys;
        __syncwarp();
        attend_alone<TYPE, WHOLE <= 128 ? 4 : 8>(
            a, token, head, outer, slope, (i64)part * share * N, end, part, start, start + D
        );
    }
}

#define MANY(NAME, TYPE, D, HALVES, N, BLOCKS)                                    \
    KERNEL_OF(attend_many_##NAME, Args, __launch_bounds__(MANY_THREADS, BLOCKS))(ARGS) { attend_many<TYPE, D, HALVES, N>(a); }

#else

// They are never launched.
#define MANY(NAME, TYPE, D, HALVES, N, BLOCKS)                                    \
    KERNEL(attend_many_##NAME)(ARGS) {}

#endif

MANY(64_f16, F16, 64, 1, 64, 3)
MANY(96_f16, F16, 96, 1, 64, 2)
MANY(128_f16, F16, 128, 1, 64, 2)
MANY(256_f16, F16, 128, 2, 32, 2)
MANY(64_bf16, BF16, 64, 1, 64, 2)
MANY(96_bf16, BF16, 96, 1, 32, 2)
MANY(128_bf16, BF16, 128, 1, 32, 2)
MANY(256_bf16, BF16, 128, 2, 32, 2)
