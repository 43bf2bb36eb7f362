// Rows: norms, soft-max, positions, sums and orders. A block does a row, unless it says otherwise. Where the result may
// stand on a source, an element is read by the thread that writes it, and all that needs other elements comes before.

enum Norm { NORM, RMS_NORM, L2_NORM };

__device__ float norm_factor(int kind, double squares, double count, float epsilon) {
    if (kind == L2_NORM) return 1 / fmaxf((float)sqrt(squares), epsilon);
    return 1 / sqrtf((float)(squares / count) + epsilon);
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
    float sum = 0;
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < groups) x[k] = load4(from + (i64)i * read, a.s[0].type);
        else x[k].x[0] = x[k].x[1] = x[k].x[2] = x[k].x[3] = 0;
    }
    float mean = 0;
    if (kind == NORM) {
#pragma unroll
        for (int k = 0; k < R; k++) sum += (x[k].x[0] + x[k].x[1]) + (x[k].x[2] + x[k].x[3]);
        mean = (float)(block_sum((double)sum) / (double)a.r.ne[0]);
    }
    float squares = 0;
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
        float part = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[k].x[j] -= mean;
            part += x[k].x[j] * x[k].x[j];
        }
        squares += part;
    }
    float factor = norm_factor(kind, block_sum((double)squares), (double)a.r.ne[0], a.f[0]);
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
    float factor = 1 / sqrtf((float)(squares / (double)n) + a.f[0]);
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

// The sum of a part of the source: a row, or all of it. i: whether it is all. f: what it is divided by.
KERNEL(sum)(ARGS) {
    i64 ne[4] = {a.s[0].ne[0], 1, 1, 1};
    Place at = row_of(blockIdx.x, a.r.ne);
    const char *from = a.s[0].p;
    if (a.i[0]) {
        for (int d = 1; d < 4; d++) ne[d] = a.s[0].ne[d];
    } else {
        from += offset_of(a.s[0], at);
    }
    u64 count = (u64)(ne[0] * ne[1] * ne[2] * ne[3]);
    char *to = a.r.p + offset_of(a.r, at);
    if (a.s[0].type == I32) {
        u64 sum = 0;
        for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
            sum += (u64)(i64) * (const int *)(from + offset_of(a.s[0], place_of(i, ne)));
        }
        sum = block_sum(sum);
        if (threadIdx.x > 0) return;
        if (a.r.type == I32) *(int *)to = (int)sum;
        else store(to, a.r.type, (float)((double)(i64)sum / a.f[0]));
        return;
    }
    double sum = 0;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        sum += load(from + offset_of(a.s[0], place_of(i, ne)), a.s[0].type);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) store(to, a.r.type, (float)(sum / a.f[0]));
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

// Each thread counts what comes before its element. Blocks along y do rows. i: whether the largest come first.
KERNEL(order)(ARGS) {
    __shared__ u64 words[256];
    bool descending = a.i[0];
    i64 n = a.s[0].ne[0], i = (i64)element();
    for (u64 row = blockIdx.y; row < (u64)(a.r.ne[1] * a.r.ne[2] * a.r.ne[3]); row += gridDim.y) {
        Place at = row_of(row, a.r.ne);
        const char *from = a.s[0].p + offset_of(a.s[0], at);
        u64 mine = i < n ? order_word(a.s[0], from, i, descending) : 0;
        i64 rank = 0;
        for (i64 first = 0; first < n; first += 256) {
            __syncthreads();
            i64 j = first + threadIdx.x;
            words[threadIdx.x] = j < n ? order_word(a.s[0], from, j, descending) : ~0ull;
            __syncthreads();
            int count = n - first < 256 ? (int)(n - first) : 256;
            for (int k = 0; k < count; k++) rank += words[k] < mine;
        }
        if (i < n && rank < a.r.ne[0]) *(int *)(a.r.p + offset_of(a.r, at) + rank * a.r.nb[0]) = (int)i;
    }
}
