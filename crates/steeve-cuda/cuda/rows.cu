// Rows: norms, soft-max, positions, sums and orders. A block does a row, unless it says otherwise. Where the result may
// stand on a source, an element is read by the thread that writes it, and all that needs other elements comes before.

enum Norm { NORM, RMS_NORM, L2_NORM };

// Squares may be beyond all numbers of f32, though their root is not.
__device__ float norm_factor(int kind, double squares, double count, float epsilon) {
    if (kind == L2_NORM) return 1 / fmaxf((float)sqrt(squares), epsilon);
    return 1 / (float)sqrt(squares / count + (double)epsilon);
}

// i: kind. f: epsilon.
KERNEL(norm)(ARGS) {
    Place at = row_of(blockIdx.x, a.r.ne);
    const char *from = a.s[0].p + offset_of(a.s[0], at);
    char *to = a.r.p + offset_of(a.r, at);
    i64 n = a.r.ne[0];
    int kind = (int)a.i[0];
    float mean = 0;
    if (kind == NORM) {
        double sum = 0;
        for (i64 i = threadIdx.x; i < n; i += blockDim.x) sum += load(from + i * a.s[0].nb[0], a.s[0].type);
        mean = (float)(block_sum(sum) / (double)n);
    }
    double squares = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float x = load(from + i * a.s[0].nb[0], a.s[0].type) - mean;
        squares += (double)x * x;
    }
    float factor = norm_factor(kind, block_sum(squares), (double)n, a.f[0]);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float x = load(from + i * a.s[0].nb[0], a.s[0].type) - mean;
        store(to + i * a.r.nb[0], a.r.type, x * factor);
    }
}

// The same for rows without gaps that fit into registers: R groups of four in each thread.
template <int R> __device__ void norm_held(const Args &a) {
    Place at = row_of(blockIdx.x, a.r.ne);
    const char *from = a.s[0].p + offset_of(a.s[0], at);
    char *to = a.r.p + offset_of(a.r, at);
    int groups = (int)(a.r.ne[0] / 4), kind = (int)a.i[0];
    int read = a.s[0].type == F32 ? 16 : 8, write = a.r.type == F32 ? 16 : 8;
    Four x[R];
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < groups) x[k] = load4(from + (i64)i * read, a.s[0].type);
        else x[k].x[0] = x[k].x[1] = x[k].x[2] = x[k].x[3] = 0;
    }
    // Sums are f64, as above. Those of four are made by themselves, so that no addition waits for all others.
    if (kind == NORM) {
        double sum = 0;
#pragma unroll
        for (int k = 0; k < R; k++) {
            const float *e = x[k].x;
            sum += ((double)e[0] + (double)e[1]) + ((double)e[2] + (double)e[3]);
        }
        float mean = (float)(block_sum(sum) / (double)a.r.ne[0]);
#pragma unroll
        for (int k = 0; k < R; k++) {
            // What is beyond the row stays zero.
            if ((int)threadIdx.x + k * (int)blockDim.x >= groups) continue;
#pragma unroll
            for (int j = 0; j < 4; j++) x[k].x[j] -= mean;
        }
    }
    double squares = 0;
#pragma unroll
    for (int k = 0; k < R; k++) {
        double e[4] = {x[k].x[0], x[k].x[1], x[k].x[2], x[k].x[3]};
        squares += (e[0] * e[0] + e[1] * e[1]) + (e[2] * e[2] + e[3] * e[3]);
    }
    float factor = norm_factor(kind, block_sum(squares), (double)a.r.ne[0], a.f[0]);
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) x[k].x[j] *= factor;
        store4(to + (i64)i * write, a.r.type, x[k]);
    }
}

KERNEL(norm_1)(ARGS) { norm_held<1>(a); }
KERNEL(norm_2)(ARGS) { norm_held<2>(a); }
KERNEL(norm_4)(ARGS) { norm_held<4>(a); }
KERNEL(norm_8)(ARGS) { norm_held<8>(a); }

// Slot 0 is the gradient of the result, slot 1 the source. f: epsilon.
KERNEL(rms_norm_back)(ARGS) {
    Place at = row_of(blockIdx.x, a.r.ne);
    const char *dz = a.s[0].p + offset_of(a.s[0], at), *x = a.s[1].p + offset_of(a.s[1], at);
    char *to = a.r.p + offset_of(a.r, at);
    i64 n = a.r.ne[0];
    double squares = 0, dot = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float v = load(x + i * a.s[1].nb[0], a.s[1].type), g = load(dz + i * a.s[0].nb[0], a.s[0].type);
        squares += (double)v * v;
        dot += (double)v * g;
    }
    squares = block_sum(squares);
    dot = block_sum(dot);
    float factor = norm_factor(RMS_NORM, squares, (double)n, a.f[0]);
    float share = (float)(dot / (squares + (double)a.f[0] * (double)n));
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float v = load(x + i * a.s[1].nb[0], a.s[1].type), g = load(dz + i * a.s[0].nb[0], a.s[0].type);
        store(to + i * a.r.nb[0], a.r.type, (g - v * share) * factor);
    }
}

// A block does a group of channels. i: channels of a group, groups. f: epsilon.
KERNEL(group_norm)(ARGS) {
    i64 per_group = a.i[0], groups = a.i[1];
    i64 group = blockIdx.x % groups, outer = blockIdx.x / groups;
    i64 first = group * per_group, channels = a.r.ne[2] - first < per_group ? a.r.ne[2] - first : per_group;
    i64 ne[4] = {a.r.ne[0], a.r.ne[1], channels, 1};
    u64 count = (u64)(ne[0] * ne[1] * ne[2]);
    const char *from = a.s[0].p + first * a.s[0].nb[2] + outer * a.s[0].nb[3];
    char *to = a.r.p + first * a.r.nb[2] + outer * a.r.nb[3];
    double sum = 0, squares = 0;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        sum += load(from + offset_of(a.s[0], place_of(i, ne)), a.s[0].type);
    }
    float mean = (float)(block_sum(sum) / (double)count);
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        float x = load(from + offset_of(a.s[0], place_of(i, ne)), a.s[0].type) - mean;
        squares += (double)x * x;
    }
    float factor = norm_factor(NORM, block_sum(squares), (double)count, a.f[0]);
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        Place at = place_of(i, ne);
        float x = load(from + offset_of(a.s[0], at), a.s[0].type) - mean;
        store(to + offset_of(a.r, at), a.r.type, x * factor);
    }
}

// Slots: scores, mask, sinks; those that are missing have no address. f: scale, bias.
KERNEL(soft_max)(ARGS) {
    Place at = row_of(blockIdx.x, a.r.ne);
    const Tensor &mask = a.s[1];
    const char *from = a.s[0].p + offset_of(a.s[0], at), *hide = 0;
    char *to = a.r.p + offset_of(a.r, at);
    i64 n = a.r.ne[0];
    float slope = 1;
    if (mask.p) {
        hide = mask.p + at.i[1] * mask.nb[1] + at.i[2] % mask.ne[2] * mask.nb[2] + at.i[3] % mask.ne[3] * mask.nb[3];
        slope = slope_of(at.i[2], a.r.ne[2], a.f[1]);
    }
    auto score = [&](i64 i) {
        float x = load(from + i * a.s[0].nb[0], a.s[0].type) * a.f[0];
        return hide ? __fadd_rn(x, __fmul_rn(slope, load(hide + i * mask.nb[0], mask.type))) : x;
    };
    float most = -INFINITE, sink = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float x = score(i);
        most = x > most ? x : most;
    }
    most = block_max(most);
    if (a.s[2].p) {
        sink = *(const float *)(a.s[2].p + at.i[2] * a.s[2].nb[0]);
        most = fmaxf(most, sink);
    }
    double sum = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) sum += expf(score(i) - most);
    sum = block_sum(sum);
    if (a.s[2].p) sum += expf(sink - most);
    float factor = (float)(1 / sum);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        store(to + i * a.r.nb[0], a.r.type, expf(score(i) - most) * factor);
    }
}

// The same for rows that fit into registers: R groups of four in each thread. Rows of the scores and the result have no gaps,
// and neither has the mask.
template <int R> __device__ void soft_max_held(const Args &a) {
    Place at = row_of(blockIdx.x, a.r.ne);
    const Tensor &mask = a.s[1];
    const char *from = a.s[0].p + offset_of(a.s[0], at), *hide = 0;
    char *to = a.r.p + offset_of(a.r, at);
    int groups = (int)(a.r.ne[0] / 4);
    int read = a.s[0].type == F32 ? 16 : 8, write = a.r.type == F32 ? 16 : 8, masked = mask.type == F32 ? 16 : 8;
    float slope = 1, most = -INFINITE, sink = 0;
    if (mask.p) {
        hide = mask.p + at.i[1] * mask.nb[1] + at.i[2] % mask.ne[2] * mask.nb[2] + at.i[3] % mask.ne[3] * mask.nb[3];
        slope = slope_of(at.i[2], a.r.ne[2], a.f[1]);
    }
    Four x[R];
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
        x[k] = load4(from + (i64)i * read, a.s[0].type);
        Four m;
        if (hide) m = load4(hide + (i64)i * masked, mask.type);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[k].x[j] *= a.f[0];
            if (hide) x[k].x[j] = __fadd_rn(x[k].x[j], __fmul_rn(slope, m.x[j]));
            most = x[k].x[j] > most ? x[k].x[j] : most;
        }
    }
    most = block_max(most);
    if (a.s[2].p) {
        sink = *(const float *)(a.s[2].p + at.i[2] * a.s[2].nb[0]);
        most = fmaxf(most, sink);
    }
    float part = 0;
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[k].x[j] = expf(x[k].x[j] - most);
            part += x[k].x[j];
        }
    }
    double sum = block_sum((double)part);
    if (a.s[2].p) sum += expf(sink - most);
    float factor = (float)(1 / sum);
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) x[k].x[j] *= factor;
        store4(to + (i64)i * write, a.r.type, x[k]);
    }
}

KERNEL(soft_max_1)(ARGS) { soft_max_held<1>(a); }
KERNEL(soft_max_4)(ARGS) { soft_max_held<4>(a); }
KERNEL(soft_max_8)(ARGS) { soft_max_held<8>(a); }

// Slot 0 is the gradient of the result, slot 1 the result. f: scale.
KERNEL(soft_max_back)(ARGS) {
    Place at = row_of(blockIdx.x, a.r.ne);
    const char *dy = a.s[0].p + offset_of(a.s[0], at), *y = a.s[1].p + offset_of(a.s[1], at);
    char *to = a.r.p + offset_of(a.r, at);
    double dot = 0;
    for (i64 i = threadIdx.x; i < a.r.ne[0]; i += blockDim.x) {
        dot += (double)load(dy + i * a.s[0].nb[0], a.s[0].type) * load(y + i * a.s[1].nb[0], a.s[1].type);
    }
    float mean = (float)block_sum(dot);
    for (i64 i = threadIdx.x; i < a.r.ne[0]; i += blockDim.x) {
        float g = load(dy + i * a.s[0].nb[0], a.s[0].type), v = load(y + i * a.s[1].nb[0], a.s[1].type);
        store(to + i * a.r.nb[0], a.r.type, a.f[0] * (g - mean) * v);
    }
}

// A thread does an element. i: the column the diagonal starts at, elements. f: what stands above it.
KERNEL(diag_mask)(ARGS) {
    if (element() >= (u64)a.i[1]) return;
    Place at = place_of(element(), a.r.ne);
    bool above = at.i[0] > a.i[0] + at.i[1];
    float x = above ? a.f[0] : load(a.s[0].p + offset_of(a.s[0], at), a.s[0].type);
    store(a.r.p + offset_of(a.r, at), a.r.type, x);
}

// A thread does a pair, or an element that is only copied.
// i: dims, how pairs are made, how positions are shared, four sections, pairs, work, units in a row.
// f: frequency scale, step of the angle, extension, magnitude, ramp from and to, sign.
KERNEL(rope)(ARGS) {
    if (element() >= (u64)a.i[8]) return;
    i64 pairs = a.i[7];
    i64 ne[4] = {a.i[9], a.r.ne[1], a.r.ne[2], a.r.ne[3]};
    Place at = place_of(element(), ne);
    i64 pair = at.i[0];
    at.i[0] = 0;
    const char *from = a.s[0].p + offset_of(a.s[0], at);
    char *to = a.r.p + offset_of(a.r, at);
    i64 read = a.s[0].nb[0], write = a.r.nb[0];
    if (pair >= pairs) {
        // What is behind the rotated part.
        i64 i = pair + pairs;
        store(to + i * write, a.r.type, load(from + i * read, a.s[0].type));
        return;
    }
    i64 part = 0, power = pair, sharing = a.i[2];
    if (sharing) {
        const i64 *sections = a.i + 3;
        i64 ends[3] = {sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]};
        i64 starts[4] = {0, ends[0], ends[1], ends[2]};
        i64 sector = pair % (ends[2] + sections[3]);
        if (sharing == 3) {
            part = sector < 3 * sections[sector % 3] ? sector % 3 : 3;
        } else {
            part = (sector >= ends[0]) + (sector >= ends[1]) + (sector >= ends[2]);
        }
        if (sharing == 2) {
            // Of sections that start at one place, only the first starts over.
            bool is_first = true;
            for (int k = 0; k < part; k++) is_first = is_first && starts[k] != starts[part];
            if (is_first) power = sector - starts[part];
        }
    }
    i64 token = at.i[2];
    float position = (float)*(const int *)(a.s[1].p + (token + part * a.r.ne[2]) * a.s[1].nb[0]);
    float theta = position * powf(a.f[1], (float)power);
    if (a.s[2].p) theta /= *(const float *)(a.s[2].p + pair * a.s[2].nb[0]);
    float angle = a.f[0] * theta;
    if (a.f[2] != 0) {
        float along = ((float)pair - a.f[4]) / fmaxf(a.f[5] - a.f[4], 0.001f);
        float mix = (1 - fminf(fmaxf(along, 0), 1)) * a.f[2];
        angle = angle * (1 - mix) + theta * mix;
    }
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    cosine *= a.f[3];
    sine *= a.f[3] * a.f[6];
    i64 one = a.i[1] ? pair : 2 * pair, two = a.i[1] ? pair + pairs : 2 * pair + 1;
    float x = load(from + one * read, a.s[0].type), y = load(from + two * read, a.s[0].type);
    store(to + one * write, a.r.type, x * cosine - y * sine);
    store(to + two * write, a.r.type, x * sine + y * cosine);
}

// A block adds up a part of a row, or of all there is; each thread in four sums, so that several reads are on their way.
template <typename T, typename READ> __device__ T sum_between(u64 first, u64 end, READ read) {
    T sums[4] = {};
    u64 i = first + threadIdx.x, step = blockDim.x;
    for (; i + 3 * step < end; i += 4 * step) {
#pragma unroll
        for (int j = 0; j < 4; j++) sums[j] += read(i + j * step);
    }
    for (; i < end; i += step) sums[0] += read(i);
    return block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// The same of a tensor's elements, as `load_one` reads them. Most are a line, and need no division to find an element.
template <typename T, typename LOAD>
__device__ T sum_of(const Tensor &t, const char *from, const i64 *ne, u64 first, u64 end, LOAD load_one) {
    if (ne[1] * ne[2] * ne[3] == 1) {
        return sum_between<T>(first, end, [&](u64 i) { return load_one(from + (i64)i * t.nb[0]); });
    }
    return sum_between<T>(first, end, [&](u64 i) { return load_one(from + offset_of(t, place_of(i, ne))); });
}

template <int TYPE> __device__ double load_double(const char *p) { return load(p, TYPE); }
__device__ u64 load_whole(const char *p) { return (u64)(i64) * (const int *)p; }

// The end of a sum: as an integer if there were only integers, which wraps around.
__device__ void store_sum(const Args &a, char *to, u64 sum) {
    if (a.r.type == I32) *(int *)to = (int)sum;
    else store(to, a.r.type, (float)((double)(i64)sum / (double)a.i[1]));
}

__device__ void store_sum(const Args &a, char *to, double sum) {
    store(to, a.r.type, (float)(sum / (double)a.i[1]));
}

// Sums of rows, or of all, in parts. A part is a block; if there are several, their sums are put together by `sum_parts`, in
// an order that depends on shapes alone. i: whether it is all, divisor, parts, elements of a part, address of the sums.
KERNEL(sum)(ARGS) {
    const Tensor &t = a.s[0];
    i64 parts = a.i[2], part = blockIdx.x % parts;
    i64 ne[4] = {t.ne[0], 1, 1, 1};
    Place at = row_of(blockIdx.x / parts, a.r.ne);
    const char *from = t.p;
    if (a.i[0]) {
        for (int d = 1; d < 4; d++) ne[d] = t.ne[d];
    } else {
        from += offset_of(t, at);
    }
    u64 count = (u64)(ne[0] * ne[1] * ne[2] * ne[3]), first = (u64)(part * a.i[3]), end = first + (u64)a.i[3];
    if (end > count) end = count;
    char *to = a.r.p + offset_of(a.r, at);
    if (t.type == I32) {
        u64 sum = sum_of<u64>(t, from, ne, first, end, load_whole);
        if (threadIdx.x > 0) return;
        if (parts > 1) ((u64 *)a.i[4])[blockIdx.x] = sum;
        else store_sum(a, to, sum);
        return;
    }
    double sum;
    if (t.type == F32) sum = sum_of<double>(t, from, ne, first, end, load_double<F32>);
    else if (t.type == F16) sum = sum_of<double>(t, from, ne, first, end, load_double<F16>);
    else sum = sum_of<double>(t, from, ne, first, end, load_double<BF16>);
    if (threadIdx.x > 0) return;
    if (parts > 1) ((double *)a.i[4])[blockIdx.x] = sum;
    else store_sum(a, to, sum);
}

// Puts the parts of a sum together. A block does a sum. i: as above.
KERNEL(sum_parts)(ARGS) {
    u64 parts = (u64)a.i[2], first = blockIdx.x * parts;
    char *to = a.r.p + offset_of(a.r, row_of(blockIdx.x, a.r.ne));
    if (a.s[0].type == I32) {
        u64 sum = sum_between<u64>(first, first + parts, [&](u64 i) { return ((const u64 *)a.i[4])[i]; });
        if (threadIdx.x == 0) store_sum(a, to, sum);
    } else {
        double sum = sum_between<double>(first, first + parts, [&](u64 i) { return ((const double *)a.i[4])[i]; });
        if (threadIdx.x == 0) store_sum(a, to, sum);
    }
}

// In the order of the numbers. Both zeros are equal, and what is no number is larger than all.
__device__ u32 order_key(float x) {
    u32 bits = x != x ? 0x7fc00000u : __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ u64 order_word(const Tensor &t, const char *row, i64 i, bool descending) {
    const char *p = row + i * t.nb[0];
    u32 key = t.type == I32 ? *(const u32 *)p ^ 0x80000000u : order_key(load(p, t.type));
    return (u64)(descending ? ~key : key) << 32 | (u32)i;
}

__device__ void store_id(const Args &a, u64 row, i64 rank, u64 word) {
    if (rank < a.r.ne[0]) *(int *)(a.r.p + offset_of(a.r, row_of(row, a.r.ne)) + rank * a.r.nb[0]) = (int)(u32)word;
}

// Rows are sorted in chunks, and sorted runs of them are merged two by two until a row is one (Batcher 1968 for the chunks).
// No two words of a row are equal, so there is one order only. Of each run only as much is kept as the result has elements.
//
// i: whether the largest come first, the first row, rows, elements of a chunk or a run, from and to which address words go.
// The last step has no such address: it writes ids.

// A block sorts a chunk of a power of two, which is full of the last of all words where the row has ended. Blocks: chunks,
// rows.
KERNEL(order_chunks)(ARGS) {
    extern __shared__ u64 words[];
    i64 n = a.s[0].ne[0];
    int chunk = (int)a.i[3], kept = a.r.ne[0] < chunk ? (int)a.r.ne[0] : chunk;
    i64 first = (i64)blockIdx.x * chunk;
    if (n - first < kept) kept = (int)(n - first);
    for (i64 line = blockIdx.y; line < a.i[2]; line += gridDim.y) {
        u64 row = (u64)(a.i[1] + line);
        const char *from = a.s[0].p + offset_of(a.s[0], row_of(row, a.r.ne));
        __syncthreads();
        for (int j = (int)threadIdx.x; j < chunk; j += (int)blockDim.x) {
            words[j] = first + j < n ? order_word(a.s[0], from, first + j, a.i[0]) : ~0ull;
        }
        for (int size = 2; size <= chunk; size *= 2) {
            for (int step = size / 2; step > 0; step /= 2) {
                __syncthreads();
                for (int j = (int)threadIdx.x; j < chunk / 2; j += (int)blockDim.x) {
                    int low = 2 * j - (j & (step - 1)), high = low + step;
                    bool rises = (low & size) == 0;
                    u64 one = words[low], two = words[high];
                    if ((one > two) == rises) words[low] = two, words[high] = one;
                }
            }
        }
        __syncthreads();
        u64 *to = (u64 *)a.i[5];
        for (int j = (int)threadIdx.x; j < kept; j += (int)blockDim.x) {
            if (to) to[line * n + first + j] = words[j];
            else store_id(a, row, j, words[j]);
        }
    }
}

// A thread finds out how many words of the other run come before its own. Blocks: elements, rows.
KERNEL(order_runs)(ARGS) {
    i64 n = a.s[0].ne[0], run = a.i[3], i = (i64)element();
    if (i >= n) return;
    i64 own = i / run, start = own / 2 * 2 * run, place = i - own * run;
    if (place >= a.r.ne[0]) return;
    i64 other = (own ^ 1) * run, length = n - other < run ? n - other : run;
    if (length > a.r.ne[0]) length = a.r.ne[0];
    for (i64 line = blockIdx.y; line < a.i[2]; line += gridDim.y) {
        const u64 *words = (const u64 *)a.i[4] + line * n;
        u64 mine = words[i];
        // A last run may be alone.
        i64 low = 0, high = length > 0 ? length : 0;
        while (low < high) {
            i64 middle = (low + high) / 2;
            if (words[other + middle] < mine) low = middle + 1;
            else high = middle;
        }
        i64 rank = place + low;
        if (a.i[5] == 0) store_id(a, (u64)(a.i[1] + line), rank, mine);
        else if (rank < a.r.ne[0]) ((u64 *)a.i[5])[line * n + start + rank] = mine;
    }
}
