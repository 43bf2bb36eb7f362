// One element of the result from one of each source. Dimensions are merged before, so that most tensors are one line.

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
    case Function::FUNCTION:           \
        for (int j = 0; j < V; j++) {  \
            float x = xs[j], y = ys[j]; \
            (void)x, (void)y;          \
            xs[j] = EXPRESSION;        \
        }                              \
        break;

template <int V> __device__ void apply(Function function, float *xs, const float *ys, const float *f) {
    switch (function) {
        EACH(Abs, fabsf(x))
        EACH(Sgn, (float)(x > 0) - (float)(x < 0))
        EACH(Neg, -x)
        EACH(Step, (float)(x > 0))
        EACH(Tanh, tanhf(x))
        EACH(Elu, x > 0 ? x : expm1f(x))
        EACH(Relu, x > 0 ? x : 0)
        EACH(Sigmoid, sigmoid(x))
        EACH(Gelu, gelu(x))
        EACH(GeluQuick, gelu_quick(x))
        EACH(Silu, silu(x))
        EACH(Hardswish, x * hardsigmoid(x))
        EACH(Hardsigmoid, hardsigmoid(x))
        EACH(Exp, expf(x))
        EACH(Expm1, expm1f(x))
        EACH(Softplus, softplus(x))
        EACH(GeluErf, gelu_erf(x))
        EACH(Xielu, xielu(x, f))
        EACH(Floor, floorf(x))
        EACH(Ceil, ceilf(x))
        EACH(Round, roundf(x))
        EACH(Trunc, truncf(x))
        EACH(Sqr, x * x)
        EACH(Sqrt, sqrtf(x))
        EACH(Log, logf(x))
        EACH(Scale, f[1] == 0 ? x * f[0] : __fadd_rn(__fmul_rn(x, f[0]), f[1]))
        EACH(Clamp, clamp(x, f[0], f[1]))
        EACH(LeakyRelu, x < 0 ? x * f[0] : x)
        EACH(Fill, f[0])
        EACH(Add, x + y)
        EACH(Sub, x - y)
        EACH(Mul, x * y)
        EACH(Div, x / y)
        EACH(SiluBack, silu_back(x, y))
        EACH(Reglu, x > 0 ? x * y : 0)
        EACH(Geglu, gelu(x) * y)
        EACH(Swiglu, silu(x) * y)
        EACH(SwigluOai, swiglu_oai(x, y, f[0], f[1]))
        EACH(GegluErf, gelu_erf(x) * y)
        EACH(GegluQuick, gelu_quick(x) * y)
    }
}

// Where the operands are at a place, by its number.
__device__ void find(const MapParams &a, u64 index, i64 *offsets) {
    offsets[0] = offsets[1] = offsets[2] = 0;
    bool is_short = a.count >> 32 == 0;
    for (int d = 0; d < a.dims; d++) {
        u64 at = index;
        if (d + 1 < a.dims) {
            u64 next = is_short ? (u64)((u32)index / (u32)a.ne[d]) : index / a.ne[d];
            at = index - next * a.ne[d];
            index = next;
        }
        for (int k = 0; k < 3; k++) offsets[k] += (i64)at * a.nb[k][d];
    }
}

template <int V, bool IS_F32> __device__ void load_some(const MapParams &a, int operand, i64 offset, float *xs) {
    int type = IS_F32 ? F32 : a.dtypes[operand];
    if (a.data[operand] == 0) {
        for (int j = 0; j < V; j++) xs[j] = 0;
        return;
    }
    const char *p = a.data[operand] + offset;
    if (V == 1 || a.splat >> operand & 1) {
        float x = load(p, type);
        for (int j = 0; j < V; j++) xs[j] = x;
        return;
    }
    Four four = load4(p, type);
    for (int j = 0; j < V; j++) xs[j] = four.x[j];
}

// Two groups of V elements for each thread, so that more is on its way at a time; the more so where the compiler knows that
// all are f32.
template <int V, bool IS_F32> __device__ void map(const MapParams &a) {
    float xs[2][V], ys[2][V];
    i64 offsets[2][3];
    u64 first = (u64)blockIdx.x * blockDim.x * 2 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        u64 index = first + (u64)k * blockDim.x;
        if (index >= a.count) break;
        find(a, index, offsets[k]);
        load_some<V, IS_F32>(a, 1, offsets[k][1], xs[k]);
        load_some<V, IS_F32>(a, 2, offsets[k][2], ys[k]);
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (first + (u64)k * blockDim.x >= a.count) break;
        apply<V>(a.function, xs[k], ys[k], a.numbers);
        char *to = a.data[0] + offsets[k][0];
        if (V == 1) {
            store(to, a.dtypes[0], xs[k][0]);
        } else {
            Four four;
            for (int j = 0; j < 4; j++) four.x[j] = xs[k][j % V];
            store4(to, IS_F32 ? F32 : a.dtypes[0], four);
        }
    }
}

KERNEL(map_1)(const MapParams &a) { map<1, false>(a); }
KERNEL(map_4)(const MapParams &a) { map<4, false>(a); }
KERNEL(map_4_f32)(const MapParams &a) { map<4, true>(a); }

KERNEL(map_int)(const MapParams &a) {
    u64 index = element();
    if (index >= a.count) return;
    i64 offsets[3];
    find(a, index, offsets);
    u32 x = a.data[1] ? *(const u32 *)(a.data[1] + offsets[1]) : 0, y = a.data[2] ? *(const u32 *)(a.data[2] + offsets[2]) : 0;
    int sx = (int)x, sy = (int)y;
    u32 out = 0;
    switch (a.function) {
    case Function::Add: out = x + y; break;
    case Function::Sub: out = x - y; break;
    case Function::Mul: out = x * y; break;
    case Function::Div:
        if (y == 0) report(a.asserts, sx);
        else out = sy == -1 ? 0 - x : (u32)(sx / sy);
        break;
    case Function::Sqr: out = x * x; break;
    case Function::Abs: out = sx < 0 ? 0 - x : x; break;
    case Function::Sgn: out = (u32)((sx > 0) - (sx < 0)); break;
    case Function::Neg: out = 0 - x; break;
    case Function::Step: out = sx > 0; break;
    case Function::Relu: out = sx > 0 ? x : 0; break;
    case Function::Fill: out = (u32)(int)a.numbers[0]; break;
    }
    *(u32 *)(a.data[0] + offsets[0]) = out;
}

// Adds to each row of `a` the row of `b` that an id names. A block does a row.
KERNEL(add_id)(const AddIdParams &a) {
    Place at = row_of(blockIdx.x, a.result.ne);
    i64 id = *(const int *)(a.ids.data + at.i[1] * a.ids.nb[0] + at.i[2] * a.ids.nb[1]);
    if (id < 0 || id >= a.b.ne[1]) {
        if (threadIdx.x == 0) report(a.asserts, id);
        return;
    }
    const char *from = a.a.data + offset_of(a.a, at), *more = a.b.data + id * a.b.nb[1];
    char *to = a.result.data + offset_of(a.result, at);
    for (i64 i = threadIdx.x; i < a.result.ne[0]; i += blockDim.x) {
        float x = load(from + i * a.a.nb[0], a.a.dtype), y = load(more + i * a.b.nb[0], a.b.dtype);
        store(to + i * a.result.nb[0], a.result.dtype, x + y);
    }
}
