// One element of the result from one of each source. Dimensions are merged before, so that most tensors are one line.

struct Map {
    char *p[3];
    i64 nb[3][8];
    u64 ne[8];
    u64 n;
    int dims;
    int op;
    int type[3];
    // One bit for each operand that has one number for a whole group of elements.
    int splat;
    float f[4];
    u64 *flag;
    u64 number;
};

static_assert(sizeof(Map) == 344, "as in shape.rs");

enum Function {
    ABS, SGN, NEG, STEP, TANH, ELU, RELU, SIGMOID, GELU, GELU_QUICK, SILU, HARDSWISH, HARDSIGMOID, EXP, EXPM1, SOFTPLUS,
    GELU_ERF, XIELU, FLOOR, CEIL, ROUND, TRUNC, SQR, SQRT, LOG, SCALE, CLAMP, FILL,
    ADD, SUB, MUL, DIV, SILU_BACK, REGLU, GEGLU, SWIGLU, SWIGLU_OAI, GEGLU_ERF, GEGLU_QUICK
};

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }
__device__ float silu(float x) { return x / (1 + expf(-x)); }
__device__ float gelu(float x) {
    float u = 0.7978846f * x * (1 + 0.044715f * x * x);
    return x / (1 + expf(-2 * u));
}
__device__ float gelu_erf(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
__device__ float gelu_quick(float x) { return x * (1 / (1 + expf(-1.702f * x))); }
__device__ float hardsigmoid(float x) {
    float y = (x + 3) / 6;
    y = y < 0 ? 0 : y;
    return y > 1 ? 1 : y;
}
__device__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }
__device__ float xielu(float x, const float *f) {
    // Slopes that were made positive before, beta, epsilon.
    if (x > 0) return f[1] * x * x + f[2] * x;
    return (expm1f(fminf(x, f[3])) - x) * f[0] + f[2] * x;
}
__device__ float swiglu_oai(float x, float y, float alpha, float limit) {
    x = limit < x ? limit : x;
    y = y < -limit ? -limit : y;
    y = y > limit ? limit : y;
    return x / (1 + expf(alpha * -x)) * (y + 1);
}
__device__ float silu_back(float g, float x) {
    float s = sigmoid(x);
    return g * s * (1 + x * (1 - s));
}
__device__ float clamp(float x, float low, float high) {
    x = x < high ? x : high;
    return x > low ? x : low;
}

// Most functions look at one of the two.
#define EACH(FUNCTION, EXPRESSION)     \
    case FUNCTION:                     \
        for (int j = 0; j < V; j++) {  \
            float x = xs[j], y = ys[j]; \
            (void)x, (void)y;          \
            xs[j] = EXPRESSION;        \
        }                              \
        break;

template <int V> __device__ void apply(int op, float *xs, const float *ys, const float *f) {
    switch (op) {
        EACH(ABS, fabsf(x))
        EACH(SGN, (float)(x > 0) - (float)(x < 0))
        EACH(NEG, -x)
        EACH(STEP, (float)(x > 0))
        EACH(TANH, tanhf(x))
        EACH(ELU, x > 0 ? x : expm1f(x))
        EACH(RELU, x > 0 ? x : 0)
        EACH(SIGMOID, sigmoid(x))
        EACH(GELU, gelu(x))
        EACH(GELU_QUICK, gelu_quick(x))
        EACH(SILU, silu(x))
        EACH(HARDSWISH, x * hardsigmoid(x))
        EACH(HARDSIGMOID, hardsigmoid(x))
        EACH(EXP, expf(x))
        EACH(EXPM1, expm1f(x))
        EACH(SOFTPLUS, softplus(x))
        EACH(GELU_ERF, gelu_erf(x))
        EACH(XIELU, xielu(x, f))
        EACH(FLOOR, floorf(x))
        EACH(CEIL, ceilf(x))
        EACH(ROUND, roundf(x))
        EACH(TRUNC, truncf(x))
        EACH(SQR, x * x)
        EACH(SQRT, sqrtf(x))
        EACH(LOG, logf(x))
        EACH(SCALE, f[1] == 0 ? x * f[0] : __fadd_rn(__fmul_rn(x, f[0]), f[1]))
        EACH(CLAMP, clamp(x, f[0], f[1]))
        EACH(FILL, f[0])
        EACH(ADD, x + y)
        EACH(SUB, x - y)
        EACH(MUL, x * y)
        EACH(DIV, x / y)
        EACH(SILU_BACK, silu_back(x, y))
        EACH(REGLU, x > 0 ? x * y : 0)
        EACH(GEGLU, gelu(x) * y)
        EACH(SWIGLU, silu(x) * y)
        EACH(SWIGLU_OAI, swiglu_oai(x, y, f[0], f[1]))
        EACH(GEGLU_ERF, gelu_erf(x) * y)
        EACH(GEGLU_QUICK, gelu_quick(x) * y)
    }
}

// Where the operands stand at a place, by its number.
__device__ void find(const Map &m, u64 index, i64 *offsets) {
    offsets[0] = offsets[1] = offsets[2] = 0;
    bool is_short = m.n >> 32 == 0;
    for (int d = 0; d < m.dims; d++) {
        u64 at = index;
        if (d + 1 < m.dims) {
            u64 next = is_short ? (u64)((u32)index / (u32)m.ne[d]) : index / m.ne[d];
            at = index - next * m.ne[d];
            index = next;
        }
        for (int k = 0; k < 3; k++) offsets[k] += (i64)at * m.nb[k][d];
    }
}

template <int V, bool IS_F32> __device__ void load_some(const Map &m, int operand, i64 offset, float *xs) {
    int type = IS_F32 ? F32 : m.type[operand];
    if (m.p[operand] == 0) {
        for (int j = 0; j < V; j++) xs[j] = 0;
        return;
    }
    const char *p = m.p[operand] + offset;
    if (V == 1 || m.splat >> operand & 1) {
        float x = load(p, type);
        for (int j = 0; j < V; j++) xs[j] = x;
        return;
    }
    Four four = load4(p, type);
    for (int j = 0; j < V; j++) xs[j] = four.x[j];
}

// Two groups of V elements for each thread, so that more is on its way at a time; the more so where the compiler knows that
// all are f32.
template <int V, bool IS_F32> __device__ void map(const Map &m) {
    float xs[2][V], ys[2][V];
    i64 offsets[2][3];
    u64 first = (u64)blockIdx.x * blockDim.x * 2 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        u64 index = first + (u64)k * blockDim.x;
        if (index >= m.n) break;
        find(m, index, offsets[k]);
        load_some<V, IS_F32>(m, 1, offsets[k][1], xs[k]);
        load_some<V, IS_F32>(m, 2, offsets[k][2], ys[k]);
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (first + (u64)k * blockDim.x >= m.n) break;
        apply<V>(m.op, xs[k], ys[k], m.f);
        char *to = m.p[0] + offsets[k][0];
        if (V == 1) {
            store(to, m.type[0], xs[k][0]);
        } else {
            Four four;
            for (int j = 0; j < 4; j++) four.x[j] = xs[k][j % V];
            store4(to, IS_F32 ? F32 : m.type[0], four);
        }
    }
}

KERNEL_OF(map_1, Map)(const Map &m) { map<1, false>(m); }
KERNEL_OF(map_4, Map)(const Map &m) { map<4, false>(m); }
KERNEL_OF(map_4_f32, Map)(const Map &m) { map<4, true>(m); }

KERNEL_OF(map_int, Map)(const Map &m) {
    u64 index = element();
    if (index >= m.n) return;
    i64 offsets[3];
    find(m, index, offsets);
    u32 x = m.p[1] ? *(const u32 *)(m.p[1] + offsets[1]) : 0, y = m.p[2] ? *(const u32 *)(m.p[2] + offsets[2]) : 0;
    int sx = (int)x, sy = (int)y;
    u32 out = 0;
    switch (m.op) {
    case ADD: out = x + y; break;
    case SUB: out = x - y; break;
    case MUL: out = x * y; break;
    case DIV:
        if (y == 0) complain(m.flag, m.number, sx);
        else out = sy == -1 ? 0 - x : (u32)(sx / sy);
        break;
    case SQR: out = x * x; break;
    case ABS: out = sx < 0 ? 0 - x : x; break;
    case SGN: out = (u32)((sx > 0) - (sx < 0)); break;
    case NEG: out = 0 - x; break;
    case STEP: out = sx > 0; break;
    case RELU: out = sx > 0 ? x : 0; break;
    case FILL: out = (u32)(int)m.f[0]; break;
    }
    *(u32 *)(m.p[0] + offsets[0]) = out;
}

// Adds to each row of `a` the row of `b` that an id names. A block does a row.
KERNEL(add_id)(ARGS) {
    Place at = row_of(blockIdx.x, a.r.ne);
    i64 id = *(const int *)(a.s[2].p + at.i[1] * a.s[2].nb[0] + at.i[2] * a.s[2].nb[1]);
    if (id < 0 || id >= a.s[1].ne[1]) {
        if (threadIdx.x == 0) complain(a.flag, a.number, id);
        return;
    }
    const char *from = a.s[0].p + offset_of(a.s[0], at), *more = a.s[1].p + id * a.s[1].nb[1];
    char *to = a.r.p + offset_of(a.r, at);
    for (i64 i = threadIdx.x; i < a.r.ne[0]; i += blockDim.x) {
        float x = load(from + i * a.s[0].nb[0], a.s[0].type), y = load(more + i * a.s[1].nb[0], a.s[1].type);
        store(to + i * a.r.nb[0], a.r.type, x + y);
    }
}
