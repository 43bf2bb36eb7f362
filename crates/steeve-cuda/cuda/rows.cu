// Rows: norms, soft-max, positions, sums and orders. A block does a row, unless it says otherwise. Where the result may
// be on a source, an element is read by the thread that writes it, and all that needs other elements comes before.

// Squares may be beyond all numbers of f32, though their root is not.
__device__ float norm_factor(Norm norm, double squares, double count, float epsilon) {
    if (norm == Norm::L2) return 1 / fmaxf((float)sqrt(squares), epsilon);
    return 1 / (float)sqrt(squares / count + (double)epsilon);
}

KERNEL(norm)(const NormParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const char *from = a.source.data + offset_of(a.source, at);
    char *to = a.result.data + offset_of(a.result, at);
    i64 n = a.result.ne[0];
    Norm norm = a.norm;
    float mean = 0;
    if (norm == Norm::Deviation) {
        double sum = 0;
        for (i64 i = threadIdx.x; i < n; i += blockDim.x) sum += load(from + i * a.source.nb[0], a.source.dtype);
        mean = (float)(block_sum(sum) / (double)n);
    }
    double squares = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float x = load(from + i * a.source.nb[0], a.source.dtype) - mean;
        squares += (double)x * x;
    }
    float factor = norm_factor(norm, block_sum(squares), (double)n, a.epsilon);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float x = load(from + i * a.source.nb[0], a.source.dtype) - mean;
        store(to + i * a.result.nb[0], a.result.dtype, x * factor);
    }
}

// The same for rows without gaps that fit into registers: R groups of four in each thread.
template <int R> __device__ void norm_held(const NormParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const char *from = a.source.data + offset_of(a.source, at);
    char *to = a.result.data + offset_of(a.result, at);
    int groups = (int)(a.result.ne[0] / 4);
    Norm norm = a.norm;
    int read = a.source.dtype == F32 ? 16 : 8, write = a.result.dtype == F32 ? 16 : 8;
    Four x[R];
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < groups) x[k] = load4(from + (i64)i * read, a.source.dtype);
        else x[k].x[0] = x[k].x[1] = x[k].x[2] = x[k].x[3] = 0;
    }
    // Sums are f64, as above. Those of four are made by themselves, so that no addition waits for all others.
    if (norm == Norm::Deviation) {
        double sum = 0;
#pragma unroll
        for (int k = 0; k < R; k++) {
            const float *e = x[k].x;
            sum += ((double)e[0] + (double)e[1]) + ((double)e[2] + (double)e[3]);
        }
        float mean = (float)(block_sum(sum) / (double)a.result.ne[0]);
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
    float factor = norm_factor(norm, block_sum(squares), (double)a.result.ne[0], a.epsilon);
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) x[k].x[j] *= factor;
        store4(to + (i64)i * write, a.result.dtype, x[k]);
    }
}

KERNEL(norm_1)(const NormParams &a) { norm_held<1>(a); }
KERNEL(norm_2)(const NormParams &a) { norm_held<2>(a); }
KERNEL(norm_4)(const NormParams &a) { norm_held<4>(a); }
KERNEL(norm_8)(const NormParams &a) { norm_held<8>(a); }

KERNEL(rms_norm_back)(const RmsNormBackParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const char *dz = a.gradient.data + offset_of(a.gradient, at), *x = a.source.data + offset_of(a.source, at);
    char *to = a.result.data + offset_of(a.result, at);
    i64 n = a.result.ne[0];
    double squares = 0, dot = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float v = load(x + i * a.source.nb[0], a.source.dtype), g = load(dz + i * a.gradient.nb[0], a.gradient.dtype);
        squares += (double)v * v;
        dot += (double)v * g;
    }
    squares = block_sum(squares);
    dot = block_sum(dot);
    float factor = norm_factor(Norm::Rms, squares, (double)n, a.epsilon);
    float share = (float)(dot / (squares + (double)a.epsilon * (double)n));
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float v = load(x + i * a.source.nb[0], a.source.dtype), g = load(dz + i * a.gradient.nb[0], a.gradient.dtype);
        store(to + i * a.result.nb[0], a.result.dtype, (g - v * share) * factor);
    }
}

// A block does a group of channels.
KERNEL(group_norm)(const GroupNormParams &a) {
    i64 per_group = a.channels, groups = a.groups;
    i64 group = blockIdx.x % groups, outer = blockIdx.x / groups;
    i64 first = group * per_group, channels = a.result.ne[2] - first < per_group ? a.result.ne[2] - first : per_group;
    i64 ne[4] = {a.result.ne[0], a.result.ne[1], channels, 1};
    u64 count = (u64)(ne[0] * ne[1] * ne[2]);
    const char *from = a.source.data + first * a.source.nb[2] + outer * a.source.nb[3];
    char *to = a.result.data + first * a.result.nb[2] + outer * a.result.nb[3];
    double sum = 0, squares = 0;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        sum += load(from + offset_of(a.source, place_of(i, ne)), a.source.dtype);
    }
    float mean = (float)(block_sum(sum) / (double)count);
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        float x = load(from + offset_of(a.source, place_of(i, ne)), a.source.dtype) - mean;
        squares += (double)x * x;
    }
    float factor = norm_factor(Norm::Deviation, block_sum(squares), (double)count, a.epsilon);
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        Place at = place_of(i, ne);
        float x = load(from + offset_of(a.source, at), a.source.dtype) - mean;
        store(to + offset_of(a.result, at), a.result.dtype, x * factor);
    }
}

KERNEL(soft_max)(const SoftMaxParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const Tensor &mask = a.mask;
    const char *from = a.scores.data + offset_of(a.scores, at), *hide = 0;
    char *to = a.result.data + offset_of(a.result, at);
    i64 n = a.result.ne[0];
    float slope = 1;
    if (mask.data) {
        hide = mask.data + at.i[1] * mask.nb[1] + at.i[2] % mask.ne[2] * mask.nb[2] + at.i[3] % mask.ne[3] * mask.nb[3];
        slope = slope_of(at.i[2], a.result.ne[2], a.max_bias);
    }
    auto score = [&](i64 i) {
        float x = load(from + i * a.scores.nb[0], a.scores.dtype) * a.scale;
        return hide ? __fadd_rn(x, __fmul_rn(slope, load(hide + i * mask.nb[0], mask.dtype))) : x;
    };
    float most = -INFINITE, sink = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        float x = score(i);
        most = x > most ? x : most;
    }
    most = block_max(most);
    if (a.sinks.data) {
        sink = *(const float *)(a.sinks.data + at.i[2] * a.sinks.nb[0]);
        most = fmaxf(most, sink);
    }
    double sum = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) sum += expf(score(i) - most);
    sum = block_sum(sum);
    if (a.sinks.data) sum += expf(sink - most);
    float factor = (float)(1 / sum);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        store(to + i * a.result.nb[0], a.result.dtype, expf(score(i) - most) * factor);
    }
}

// The same for rows that fit into registers: R groups of four in each thread. Rows of the scores and the result have no gaps,
// and neither has the mask.
template <int R> __device__ void soft_max_held(const SoftMaxParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const Tensor &mask = a.mask;
    const char *from = a.scores.data + offset_of(a.scores, at), *hide = 0;
    char *to = a.result.data + offset_of(a.result, at);
    int groups = (int)(a.result.ne[0] / 4);
    int read = a.scores.dtype == F32 ? 16 : 8, write = a.result.dtype == F32 ? 16 : 8, masked = mask.dtype == F32 ? 16 : 8;
    float slope = 1, most = -INFINITE, sink = 0;
    if (mask.data) {
        hide = mask.data + at.i[1] * mask.nb[1] + at.i[2] % mask.ne[2] * mask.nb[2] + at.i[3] % mask.ne[3] * mask.nb[3];
        slope = slope_of(at.i[2], a.result.ne[2], a.max_bias);
    }
    Four x[R];
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
        x[k] = load4(from + (i64)i * read, a.scores.dtype);
        Four m;
        if (hide) m = load4(hide + (i64)i * masked, mask.dtype);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[k].x[j] *= a.scale;
            if (hide) x[k].x[j] = __fadd_rn(x[k].x[j], __fmul_rn(slope, m.x[j]));
            most = x[k].x[j] > most ? x[k].x[j] : most;
        }
    }
    most = block_max(most);
    if (a.sinks.data) {
        sink = *(const float *)(a.sinks.data + at.i[2] * a.sinks.nb[0]);
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
    if (a.sinks.data) sum += expf(sink - most);
    float factor = (float)(1 / sum);
#pragma unroll
    for (int k = 0; k < R; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= groups) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) x[k].x[j] *= factor;
        store4(to + (i64)i * write, a.result.dtype, x[k]);
    }
}

KERNEL(soft_max_1)(const SoftMaxParams &a) { soft_max_held<1>(a); }
KERNEL(soft_max_4)(const SoftMaxParams &a) { soft_max_held<4>(a); }
KERNEL(soft_max_8)(const SoftMaxParams &a) { soft_max_held<8>(a); }

KERNEL(soft_max_back)(const SoftMaxBackParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    const char *dy = a.gradient.data + offset_of(a.gradient, at), *y = a.output.data + offset_of(a.output, at);
    char *to = a.result.data + offset_of(a.result, at);
    double dot = 0;
    for (i64 i = threadIdx.x; i < a.result.ne[0]; i += blockDim.x) {
        dot += (double)load(dy + i * a.gradient.nb[0], a.gradient.dtype) * load(y + i * a.output.nb[0], a.output.dtype);
    }
    float mean = (float)block_sum(dot);
    for (i64 i = threadIdx.x; i < a.result.ne[0]; i += blockDim.x) {
        float g = load(dy + i * a.gradient.nb[0], a.gradient.dtype), v = load(y + i * a.output.nb[0], a.output.dtype);
        store(to + i * a.result.nb[0], a.result.dtype, a.scale * (g - mean) * v);
    }
}

// A thread does an element.
KERNEL(diag_mask)(const DiagMaskParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne);
    bool above = at.i[0] > a.past + at.i[1];
    float x = above ? a.value : load(a.source.data + offset_of(a.source, at), a.source.dtype);
    store(a.result.data + offset_of(a.result, at), a.result.dtype, x);
}

// A thread does a pair, or an element that is only copied.
KERNEL(rope)(const RopeParams &a) {
    if (element() >= a.count) return;
    i64 pairs = a.pairs;
    i64 ne[4] = {a.units, a.result.ne[1], a.result.ne[2], a.result.ne[3]};
    Place at = place_of(element(), ne);
    i64 pair = at.i[0];
    at.i[0] = 0;
    const char *from = a.source.data + offset_of(a.source, at);
    char *to = a.result.data + offset_of(a.result, at);
    i64 read = a.source.nb[0], write = a.result.nb[0];
    if (pair >= pairs) {
        // What is behind the rotated part.
        i64 i = pair + pairs;
        store(to + i * write, a.result.dtype, load(from + i * read, a.source.dtype));
        return;
    }
    i64 part = 0, power = pair;
    if (a.sharing != PositionSharing::None) {
        const i64 *sections = a.sections;
        i64 ends[3] = {sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]};
        i64 starts[4] = {0, ends[0], ends[1], ends[2]};
        i64 sector = pair % (ends[2] + sections[3]);
        if (a.sharing == PositionSharing::InTurn) {
            part = sector < 3 * sections[sector % 3] ? sector % 3 : 3;
        } else {
            part = (sector >= ends[0]) + (sector >= ends[1]) + (sector >= ends[2]);
        }
        if (a.sharing == PositionSharing::StartingOver) {
            // Of sections that start at one place, only the first starts over.
            bool is_first = true;
            for (int k = 0; k < part; k++) is_first = is_first && starts[k] != starts[part];
            if (is_first) power = sector - starts[part];
        }
    }
    i64 token = at.i[2];
    float position = (float)*(const int *)(a.positions.data + (token + part * a.result.ne[2]) * a.positions.nb[0]);
    float theta = position * powf(a.theta_scale, (float)power);
    if (a.factors.data) theta /= *(const float *)(a.factors.data + pair * a.factors.nb[0]);
    float angle = a.freq_scale * theta;
    if (a.ext_factor != 0) {
        float along = ((float)pair - a.ramp[0]) / fmaxf(a.ramp[1] - a.ramp[0], 0.001f);
        float mix = (1 - fminf(fmaxf(along, 0), 1)) * a.ext_factor;
        angle = angle * (1 - mix) + theta * mix;
    }
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    cosine *= a.magnitude;
    sine *= a.magnitude * a.sign;
    i64 one = a.pairing == Pairing::Halves ? pair : 2 * pair, two = a.pairing == Pairing::Halves ? pair + pairs : 2 * pair + 1;
    float x = load(from + one * read, a.source.dtype), y = load(from + two * read, a.source.dtype);
    store(to + one * write, a.result.dtype, x * cosine - y * sine);
    store(to + two * write, a.result.dtype, x * sine + y * cosine);
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
__device__ void store_sum(const SumParams &a, char *to, u64 sum) {
    if (a.result.dtype == I32) *(int *)to = (int)sum;
    else store(to, a.result.dtype, (float)((double)(i64)sum / (double)a.divisor));
}

__device__ void store_sum(const SumParams &a, char *to, double sum) {
    store(to, a.result.dtype, (float)(sum / (double)a.divisor));
}

// Sums of rows, or of all, in parts. A part is a block; if there are several, their sums are put together by `sum_parts`, in
// an order that depends on shapes alone.
KERNEL(sum)(const SumParams &a) {
    const Tensor &t = a.source;
    i64 parts = a.parts, part = blockIdx.x % parts;
    i64 ne[4] = {t.ne[0], 1, 1, 1};
    Place at = row_of(blockIdx.x / parts, a.result.ne);
    const char *from = t.data;
    if (a.is_all) {
        for (int d = 1; d < 4; d++) ne[d] = t.ne[d];
    } else {
        from += offset_of(t, at);
    }
    u64 count = (u64)(ne[0] * ne[1] * ne[2] * ne[3]), first = (u64)(part * a.part_length), end = first + (u64)a.part_length;
    if (end > count) end = count;
    char *to = a.result.data + offset_of(a.result, at);
    if (t.dtype == I32) {
        u64 sum = sum_of<u64>(t, from, ne, first, end, load_whole);
        if (threadIdx.x > 0) return;
        if (parts > 1) a.partial[blockIdx.x] = sum;
        else store_sum(a, to, sum);
        return;
    }
    double sum;
    if (t.dtype == F32) sum = sum_of<double>(t, from, ne, first, end, load_double<F32>);
    else if (t.dtype == F16) sum = sum_of<double>(t, from, ne, first, end, load_double<F16>);
    else sum = sum_of<double>(t, from, ne, first, end, load_double<BF16>);
    if (threadIdx.x > 0) return;
    if (parts > 1) ((double *)a.partial)[blockIdx.x] = sum;
    else store_sum(a, to, sum);
}

// Puts the parts of a sum together. A block does a sum.
KERNEL(sum_parts)(const SumParams &a) {
    u64 parts = (u64)a.parts, first = blockIdx.x * parts;
    char *to = a.result.data + offset_of(a.result, row_of(blockIdx.x, a.result.ne));
    if (a.source.dtype == I32) {
        u64 sum = sum_between<u64>(first, first + parts, [&](u64 i) { return a.partial[i]; });
        if (threadIdx.x == 0) store_sum(a, to, sum);
    } else {
        double sum = sum_between<double>(first, first + parts, [&](u64 i) { return ((const double *)a.partial)[i]; });
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
    u32 key = t.dtype == I32 ? *(const u32 *)p ^ 0x80000000u : order_key(load(p, t.dtype));
    return (u64)(descending ? ~key : key) << 32 | (u32)i;
}

__device__ void store_id(const OrderParams &a, u64 row, i64 rank, u64 word) {
    if (rank >= a.result.ne[0]) return;
    char *to = a.result.data + offset_of(a.result, row_of(row, a.result.ne));
    *(int *)(to + rank * a.result.nb[0]) = (int)(u32)word;
}

// Rows are sorted in chunks, and sorted runs of them are merged two by two until a row is one (Batcher 1968 for the chunks).
// No two words of a row are equal, so there is one order only. Of each run only as much is kept as the result has elements.
//
// The last step writes ids instead of words.

// A block sorts a chunk of a power of two, which is full of the last of all words where the row has ended. Blocks: chunks,
// rows.
KERNEL(order_chunks)(const OrderParams &a) {
    extern __shared__ u64 words[];
    i64 n = a.source.ne[0];
    int chunk = (int)a.run, kept = a.result.ne[0] < chunk ? (int)a.result.ne[0] : chunk;
    i64 first = (i64)blockIdx.x * chunk;
    if (n - first < kept) kept = (int)(n - first);
    for (i64 line = blockIdx.y; line < a.rows; line += gridDim.y) {
        u64 row = (u64)(a.first_row + line);
        const char *from = a.source.data + offset_of(a.source, row_of(row, a.result.ne));
        __syncthreads();
        for (int j = (int)threadIdx.x; j < chunk; j += (int)blockDim.x) {
            words[j] = first + j < n ? order_word(a.source, from, first + j, a.is_descending) : ~0ull;
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
        u64 *to = a.to;
        for (int j = (int)threadIdx.x; j < kept; j += (int)blockDim.x) {
            if (to) to[line * n + first + j] = words[j];
            else store_id(a, row, j, words[j]);
        }
    }
}

// A thread finds out how many words of the other run come before its own. Blocks: elements, rows.
KERNEL(order_runs)(const OrderParams &a) {
    i64 n = a.source.ne[0], run = a.run, i = (i64)element();
    if (i >= n) return;
    i64 own = i / run, start = own / 2 * 2 * run, place = i - own * run;
    if (place >= a.result.ne[0]) return;
    i64 other = (own ^ 1) * run, length = n - other < run ? n - other : run;
    if (length > a.result.ne[0]) length = a.result.ne[0];
    for (i64 line = blockIdx.y; line < a.rows; line += gridDim.y) {
        const u64 *words = a.from + line * n;
        u64 mine = words[i];
        // A last run may be alone.
        i64 low = 0, high = length > 0 ? length : 0;
        while (low < high) {
            i64 middle = (low + high) / 2;
            if (words[other + middle] < mine) low = middle + 1;
            else high = middle;
        }
        i64 rank = place + low;
        if (!a.to) store_id(a, (u64)(a.first_row + line), rank, mine);
        else if (rank < a.result.ne[0]) (a.to)[line * n + start + rank] = mine;
    }
}
