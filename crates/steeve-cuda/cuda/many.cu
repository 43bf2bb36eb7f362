// Many queries with tensor cores: 16 of them in each warp, and a tile of 64 or 32 keys at a time (Dao 2023).
//
// Products are of the type of the keys, and sums are f32. Nothing is lost by that: queries and weights go in as sums of
// two numbers of f16 or three of bf16, which hold as many digits as one of f32. Queries are first multiplied by a power of
// two and weights by 2^7, so that their second parts are not too small for f16 either.
//
// Lanes have what `mma.cu` says, so weights become a left factor where they are. Keys and values come into shared memory ahead of time, in three rooms:
//
//   room 0  | keys 0     | values 1   | keys 3  ...
//   room 1  | values 0      | keys 2     |
//   room 2  |    | keys 1      | values 2   |
//
// Before all this `attend_look` has looked at the mask: tiles that no query sees are not read, nor are keys that no query
// sees in a tile that one does, and tiles with nothing but zeros need no mask.

#define MANY_THREADS 128

// The mask's row for a query.
__device__ const char *mask_row(const Tensor &mask, u32 token, u32 head, u32 outer) {
    return mask.data + token * mask.nb[1] + head % (u32)mask.ne[2] * mask.nb[2] + outer % (u32)mask.ne[3] * mask.nb[3];
}

#if __CUDA_ARCH__ >= 800

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

// Four pieces as `fetch` reads them, with rows and columns exchanged.
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

// Starts copying the keys of a tile that some query sees into shared memory, with zeros for the others: so nothing that is
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

// The tiles that some query sees, in order. Each lane has looked at one of 32.
template <int N> struct Tiles {
    const TileMask *looks;
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
                TileMask look = looks[tile];
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
    return (((u64)t.data | (u64)t.nb[1] | (u64)t.nb[2] | (u64)t.nb[3]) & (size - 1)) == 0;
}

// One query in a warp, with nothing but sums of what it sees: for those whose sums are no numbers, because some key or value
// that another query sees is none, or since that is how it is. Columns `from` to `to` are written.
template <int TYPE, int R>
__device__ void attend_alone(
    const AttentionParams &a, i64 token, i64 head, i64 outer, float slope, i64 first, i64 last, i64 part, int from, int to
) {
    const Tensor &q = a.q, &k = a.k, &v = a.v, &mask = a.mask;
    int lane = threadIdx.x % 32, d = (int)q.ne[0], dv = (int)v.ne[0];
    i64 heads = q.ne[2], parts = a.parts;
    const char *query = q.data + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
    const char *key_rows = k.data + head / (heads / k.ne[2]) * k.nb[2] + outer * k.nb[3];
    const char *value_rows = v.data + head / (heads / v.ne[2]) * v.nb[2] + outer * v.nb[3];
    const char *hide = mask.data ? mask_row(mask, (u32)token, (u32)head, (u32)outer) : 0;
    float softcap = a.softcap, most = -INFINITE, total = 0, x[R], sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = lane * R + r;
        x[r] = i < d ? load(query + i * q.nb[0], q.dtype) * a.scale : 0;
        sum[r] = 0;
    }
#pragma unroll 1
    for (i64 key = first; key < last; key++) {
        float hidden = hide ? load(hide + key * mask.nb[0], mask.dtype) : 0, y[R], score = 0;
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
    float *partial = a.partial + (number * parts + part) * (dv + 2);
    char *result = a.result.data + head * a.result.nb[1] + token * a.result.nb[2] + outer * a.result.nb[3];
    float factor = parts > 1 ? 1 : factor_of(a, head, most, total);
    if (parts > 1 && lane == 0) partial[0] = most, partial[1] = total;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = lane * R + r;
        if (i < from || i >= to || i >= dv) continue;
        if (parts > 1) partial[2 + i] = sum[r];
        else *(float *)(result + i * a.result.nb[0]) = sum[r] * factor;
    }
}

// A tile of keys: its number, or less than zero behind the last; which keys are seen; whether there is nothing to hide.
struct Tile {
    int number;
    u64 seen;
    bool is_plain;
};

// What a thread does for many queries, and what it has found so far.
//
// A warp has D columns of its queries and of its results. Where rows have twice as many, two warps have the same queries: each
// makes half of the sums of a score.
// Blocks: groups, queries, outer times parts.
template <int TYPE, int D, int HALVES, int N> struct ManyQueries {
    static constexpr int PARTS = TYPE == F16 ? 2 : 3, WHOLE = D * HALVES;
    static constexpr int PITCH = (WHOLE + 63) / 64 * 128, ROOM = N * PITCH, ROWS = 16 * WARPS / HALVES;
    static constexpr float LOG2E = 1.4426950408889634f, GAIN = TYPE == F16 ? 7 : 0;

    const AttentionParams &a;
    int lane, warp, row, column, d, dv, half, start;
    u32 group, all, parts, part, heads, first_head, block, first_query, count, share;
    i64 outer, keys;
    const char *key_rows, *value_rows;
    Tiles<N> tiles;
    // Rooms in shared memory, and where lanes fetch from, but for what is the same in all of them.
    u32 base, key_room, value_room, free_room, key_at, key_piece, value_at, value_piece;
    // Queries, what undoes their power of two, and the slopes of their heads.
    u32 x[D / 16][PARTS * 4];
    float undo[2], slopes[2];
    // The largest score, the sum of the weights, and the weighted sums of the values.
    float most[2], total[2], out[D / 8][4];

    __device__ __forceinline__ explicit ManyQueries(const AttentionParams &a) : a(a) {
        lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, column = lane % 4 * 2;
        d = (int)a.q.ne[0], dv = (int)a.v.ne[0], half = warp % HALVES, start = half * D;
        group = (u32)a.group, all = (u32)a.queries, parts = (u32)a.parts, part = blockIdx.z % parts;
        heads = (u32)a.q.ne[2], first_head = blockIdx.x * group;
        outer = blockIdx.z / parts, keys = a.k.ne[1];
        // The last queries see most where a mask is causal, and should not be begun last.
        block = gridDim.y - 1 - blockIdx.y, first_query = block * ROWS + warp / HALVES * 16;
        key_rows = a.k.data + first_head / (heads / (u32)a.k.ne[2]) * a.k.nb[2] + outer * a.k.nb[3];
        value_rows = a.v.data + first_head / (heads / (u32)a.v.ne[2]) * a.v.nb[2] + outer * a.v.nb[3];
    }

    // Those beyond the last are done twice.
    __device__ __forceinline__ u32 query_of(int h) const {
        return first_query + row + 8 * h < all ? first_query + row + 8 * h : all - 1;
    }

    // Which tiles are for this block.
    __device__ __forceinline__ void find_tiles() {
        count = (u32)((keys + N - 1) / N), share = (count + parts - 1) / parts;
        tiles.looks = 0, tiles.keys = keys, tiles.base = (int)(part * share);
        tiles.end = (int)(part * share + share < count ? part * share + share : count);
        if (a.mask.data) {
            i64 before = a.mask.ne[3] == 1 ? 0 : outer;
            if (a.mask.ne[2] != 1) before = before * gridDim.x + blockIdx.x;
            tiles.looks = a.tile_masks + (before * gridDim.y + block) * count;
        }
        tiles.look();
    }

    __device__ __forceinline__ Tile next_tile() {
        Tile tile = {-1, 0, false};
        tile.number = tiles.next(tile.seen, tile.is_plain);
        return tile;
    }

    __device__ __forceinline__ void find_rooms() {
        extern __shared__ float4 memory[];
        base = (u32)__cvta_generic_to_shared(memory);
        key_room = base, value_room = base + ROOM, free_room = base + 2 * ROOM;
        key_at = (lane / 16 * 8 + lane % 8) * PITCH, key_piece = ((u32)(start / 8 + lane / 8 % 2) ^ lane % 8) << 4;
        value_at = lane % 16 * PITCH, value_piece = ((u32)(start / 8 + lane / 16) ^ lane % 8) << 4;
    }

    // Starts copying the keys of a tile, if there is one.
    __device__ __forceinline__ void copy_keys(u32 room, const Tile &tile) const {
        if (tile.number >= 0) copy_rows<N, PITCH, WHOLE / 8>(room, key_rows, a.k.nb[1], d, tile.number, tile.seen);
        commit();
    }

    __device__ __forceinline__ void copy_values(u32 room, const Tile &tile) const {
        if (tile.number >= 0) copy_rows<N, PITCH, WHOLE / 8>(room, value_rows, a.v.nb[1], dv, tile.number, tile.seen);
        commit();
    }

    // Reads the queries of rows g and g + 8, multiplied by a power of two, as sums of numbers of the keys' type.
    __device__ __forceinline__ void read_queries() {
        const Tensor &q = a.q;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 number = query_of(h), head = first_head + number % group, token = number / group;
            const char *query = q.data + token * q.nb[1] + head * q.nb[2] + outer * q.nb[3];
            float raw[D / 8][2], largest_here = 0;
            bool pairs = q.nb[0] == 4 && is_aligned(q, 8);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                int i = start + n * 8 + column;
                float2 two = make_float2(0, 0);
                if (i < d) {
                    if (pairs) two = *(const float2 *)(query + i * 4);
                    else two = make_float2(*(const float *)(query + i * q.nb[0]), *(const float *)(query + (i + 1) * q.nb[0]));
                }
                raw[n][0] = two.x * a.scale, raw[n][1] = two.y * a.scale;
                largest_here = fmaxf(largest_here, fmaxf(fabsf(raw[n][0]), fabsf(raw[n][1])));
            }
            largest_here = largest(largest_here);
            float power = 1;
            undo[h] = 1;
            if (TYPE == F16) {
                // The largest becomes one from 2^14 to 2^15.
                int exponent = 268 - (int)(__float_as_uint(largest_here) >> 23);
                exponent = exponent > 253 ? 253 : exponent;
                power = __uint_as_float((u32)exponent << 23);
                undo[h] = __uint_as_float((u32)(254 - exponent) << 23);
            }
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                split<TYPE, PARTS>(raw[n][0] * power, raw[n][1] * power, &x[n / 2][n % 2 * 2 + h], 4);
            }
            slopes[h] = a.mask.data ? slope_of(head, heads, a.max_bias) : 1;
        }
    }

    __device__ __forceinline__ void start_sums() {
        most[0] = most[1] = -INFINITE, total[0] = total[1] = 0;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) out[n][e] = 0;
        }
    }

    // Scores: queries times keys.
    __device__ __forceinline__ void multiply_keys(float (&s)[N / 8][4]) const {
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
    }

    // The other half of each score is in the next warp; both are put together where the keys were.
    __device__ __forceinline__ void join_halves(float (&s)[N / 8][4], float (&step)[2]) const {
        extern __shared__ float4 memory[];
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

    __device__ __forceinline__ void cap_scores(float (&s)[N / 8][4], float (&step)[2]) const {
        float softcap = a.softcap;
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = softcap * tanhf(s[n][e] * step[e / 2]);
        }
        step[0] = step[1] = 1;
    }

    // Adds the mask to the scores, and hides what is not seen.
    __device__ __forceinline__ void mask_scores(const Tile &tile, float (&s)[N / 8][4], float (&step)[2]) const {
        const Tensor &mask = a.mask;
        bool pairs = mask.data && mask.nb[0] == 2 && keys % 2 == 0 && is_aligned(mask, 4);
        const char *hide[2] = {0, 0};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 number = query_of(h), head = first_head + number % group;
            if (!mask.data) continue;
            hide[h] = mask_row(mask, number / group, head, (u32)outer) + ((i64)tile.number * N + column) * mask.nb[0];
        }
#pragma unroll
        for (int n = 0; n < N / 8; n += 4) {
            // Two elements for each query and eight keys. All of them are on their way before any is used.
            u32 words[4][2];
#pragma unroll
            for (int m = 0; m < 8; m++) {
                bool is_read = pairs && tile.seen >> ((n + m / 2) * 8 + column) & 3;
                words[m / 2][m % 2] = is_read ? *(const u32 *)(hide[m % 2] + (n + m / 2) * 16) : 0;
            }
#pragma unroll
            for (int m = 0; m < 16; m++) {
                int e = m % 4, i = (n + m / 4) * 8 + e % 2;
                bool is_seen = tile.seen >> (i + column) & 1;
                float score = s[n + m / 4][e] * step[e / 2];
                float hidden = from_f16((u16)(words[m / 4][e / 2] >> (e % 2 * 16)));
                if (mask.data && !pairs && is_seen) hidden = from_f16(*(const u16 *)(hide[e / 2] + i * mask.nb[0]));
                if (mask.data) score = __fadd_rn(score, __fmul_rn(slopes[e / 2], hidden));
                s[n + m / 4][e] = is_seen && hidden != -INFINITE ? score : -INFINITE;
            }
        }
        step[0] = step[1] = 1;
    }

    // Makes weights of the scores. What was summed before is multiplied by `grown`.
    __device__ __forceinline__ void weigh(
        const float (&s)[N / 8][4], const float (&step)[2], float (&grown)[2], u32 (&weights)[N / 16][PARTS * 4]
    ) {
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
    }

    // Sums: weights times values. Those of a tile start from zero: tensor cores cut off what they can't hold, and in a long
    // sum that would add up.
    __device__ __forceinline__ void add_values(const float (&grown)[2], const u32 (&weights)[N / 16][PARTS * 4]) {
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
    }

    // Writes the results, or what this part has found. Says of each query whether its sums are no numbers.
    __device__ __forceinline__ void store_results(u32 (&bad)[2]) const {
        const Tensor &q = a.q;
        bool pairs = a.result.nb[0] == 4 && is_aligned(a.result, 8);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = total[h];
            sum += __shfl_xor_sync(ALL, sum, 1);
            sum += __shfl_xor_sync(ALL, sum, 2);
            u32 number = first_query + row + 8 * h, head = first_head + number % group, token = number / group;
            float factor = TYPE == F16 ? 1.0f / 128 : 1, check = 0;
            float *partial = a.partial + (((outer * heads + head) * q.ne[1] + token) * parts + part) * (dv + 2) + 2;
            char *result = a.result.data + head * a.result.nb[1] + token * a.result.nb[2] + outer * a.result.nb[3];
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
                    else *(float *)(result + i * a.result.nb[0]) = one, *(float *)(result + (i + 1) * a.result.nb[0]) = two;
                }
            }
            bad[h] = __ballot_sync(ALL, !(check == 0));
        }
    }

    // Zero times infinity is not zero: where it was met, each query is done by itself.
    __device__ __forceinline__ void repeat_alone(const u32 (&bad)[2]) const {
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

    __device__ __forceinline__ void run() {
        find_tiles();
        find_rooms();
        Tile tile = next_tile();
        copy_keys(key_room, tile);
        copy_values(value_room, tile);
        read_queries();
        start_sums();
        while (tile.number >= 0) {
            Tile next = next_tile();
            arrive();
            __syncthreads();
            copy_keys(free_room, next);
            float s[N / 8][4], step[2] = {undo[0], undo[1]}, grown[2];
            u32 weights[N / 16][PARTS * 4];
            multiply_keys(s);
            if (HALVES == 2) join_halves(s, step);
            if (a.softcap != 0) cap_scores(s, step);
            if (!tile.is_plain) mask_scores(tile, s, step);
            weigh(s, step, grown, weights);
            arrive();
            __syncthreads();
            copy_values(key_room, next);
            add_values(grown, weights);
            u32 room = key_room;
            key_room = free_room, free_room = value_room, value_room = room;
            tile = next;
        }
        u32 bad[2];
        store_results(bad);
        repeat_alone(bad);
    }
};

#define MANY(NAME, TYPE, D, HALVES, N, BLOCKS)                                    \
    KERNEL_WITHIN(attend_many_##NAME, __launch_bounds__(MANY_THREADS, BLOCKS))(const AttentionParams &a) { \
        ManyQueries<TYPE, D, HALVES, N>(a).run();                                 \
    }

#else

// They are never launched.
#define MANY(NAME, TYPE, D, HALVES, N, BLOCKS) KERNEL(attend_many_##NAME)(const AttentionParams &a) {}

#endif
