// What all kernels share: numbers as they are in memory, places of elements, sums over threads.
//
// Types of data, tensors and what each kernel is told are declared ahead of this, from their definitions in Rust.

// A kernel may be there before the one ahead of it is done, so that none has to wait for its start: it waits here for what
// that one has written, which has waited for all before it, and lets the next one come.
__device__ __forceinline__ void take_over() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Every kernel is made by this, so that none can forget it: it takes `params_NAME`, as the list of kernels in Rust says. What
// follows the name are bounds for the compiler.
#define KERNEL_WITHIN(NAME, ...)                                                  \
    __device__ __forceinline__ void body_##NAME(const params_##NAME &a);          \
    extern "C" __global__ void __VA_ARGS__ steeve_##NAME(const __grid_constant__ params_##NAME a) { \
        take_over();                                                              \
        body_##NAME(a);                                                           \
    }                                                                             \
    __device__ __forceinline__ void body_##NAME
#define KERNEL(NAME) KERNEL_WITHIN(NAME, )
#define INFINITE __int_as_float(0x7f800000)

// What data alone can show to be wrong is told to the host: which node, and which number. One word, so that it is never torn.
__device__ void report(const AssertSite &asserts, i64 value) {
    // What has no room in half a word is said to be the largest that has.
    value = value > 0x7fffffff ? 0x7fffffff : value < -0x80000000ll ? -0x80000000ll : value;
    *(volatile u64 *)asserts.word = asserts.node << 32 | (u32)value;
}

__device__ float from_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ u16 to_f16(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ float from_bf16(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}

__device__ u16 to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    // What is no number must not round to infinity.
    if ((bits << 1) > 0xff000000u) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ float load(const char *p, int type) {
    switch (type) {
    case F32: return *(const float *)p;
    case F16: return from_f16(*(const u16 *)p);
    default: return from_bf16(*(const u16 *)p);
    }
}

__device__ void store(char *p, int type, float x) {
    switch (type) {
    case F32: *(float *)p = x; break;
    case F16: *(u16 *)p = to_f16(x); break;
    default: *(u16 *)p = to_bf16(x); break;
    }
}

struct Four {
    float x[4];
};

// Four elements side by side, at a multiple of their size.
__device__ Four load4(const char *p, int type) {
    Four out;
    if (type == F32) {
        float4 v = *(const float4 *)p;
        out.x[0] = v.x, out.x[1] = v.y, out.x[2] = v.z, out.x[3] = v.w;
        return out;
    }
    uint2 v = *(const uint2 *)p;
    u16 bits[4] = {(u16)v.x, (u16)(v.x >> 16), (u16)v.y, (u16)(v.y >> 16)};
#pragma unroll
    for (int j = 0; j < 4; j++) out.x[j] = type == F16 ? from_f16(bits[j]) : from_bf16(bits[j]);
    return out;
}

__device__ void store4(char *p, int type, Four v) {
    if (type == F32) {
        *(float4 *)p = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
        return;
    }
    u16 bits[4];
#pragma unroll
    for (int j = 0; j < 4; j++) bits[j] = type == F16 ? to_f16(v.x[j]) : to_bf16(v.x[j]);
    *(uint2 *)p = make_uint2((u32)bits[0] | (u32)bits[1] << 16, (u32)bits[2] | (u32)bits[3] << 16);
}

// The block of element `i` of a row of blocks.
template <int TYPE> __device__ const char *block_of(const char *row, i64 i) {
    return row + i / block_length<TYPE> * block_bytes<TYPE>;
}

// Element `i` of a row of floats, or of the blocks that are also written.
__device__ float load_at(const char *row, int type, i64 step, i64 i) {
    if (type == Q8_0) {
        const char *block = block_of<Q8_0>(row, i);
        return from_f16(*(const u16 *)block) * (float)*(const i8 *)(block + 2 + i % 32);
    }
    if (type == Q4_0) {
        const char *block = block_of<Q4_0>(row, i);
        int j = (int)(i % 32);
        int pair = *(const u8 *)(block + 2 + j % 16);
        return from_f16(*(const u16 *)block) * (float)((j < 16 ? pair & 15 : pair >> 4) - 8);
    }
    return load(row + i * step, type);
}

// Four elements of such a row, from a multiple of four on; floats are side by side at a multiple of their size.
__device__ Four load4_at(const char *row, int type, i64 i) {
    Four out;
    if (type == Q8_0) {
        const char *block = block_of<Q8_0>(row, i);
        float scale = from_f16(*(const u16 *)block);
        const u16 *pairs = (const u16 *)(block + 2 + i % 32);
        u16 low = pairs[0], high = pairs[1];
        out.x[0] = scale * (float)(i8)low, out.x[1] = scale * (float)(i8)(low >> 8);
        out.x[2] = scale * (float)(i8)high, out.x[3] = scale * (float)(i8)(high >> 8);
        return out;
    }
    if (type == Q4_0) {
        const char *block = block_of<Q4_0>(row, i);
        float scale = from_f16(*(const u16 *)block);
        int j = (int)(i % 32);
        const u16 *pairs = (const u16 *)(block + 2 + j % 16);
        u32 all = pairs[0] | (u32)pairs[1] << 16;
        all = j < 16 ? all & 0x0f0f0f0f : all >> 4 & 0x0f0f0f0f;
#pragma unroll
        for (int k = 0; k < 4; k++) out.x[k] = scale * (float)((int)(all >> (8 * k) & 15) - 8);
        return out;
    }
    return load4(row + i * (type == F32 ? 4 : 2), type);
}

// One block of 32 elements, rounded as ggml does it: no product and sum may become one instruction.
__device__ void encode_q8_0(char *block, const float *x) {
    float most = 0;
    for (int j = 0; j < 32; j++) most = most < fabsf(x[j]) ? fabsf(x[j]) : most;
    float scale = __fdiv_rn(most, 127.0f), inverse = scale == 0 ? 0 : __fdiv_rn(1.0f, scale);
    *(u16 *)block = to_f16(scale);
    for (int j = 0; j < 32; j++) {
        float y = __fmul_rn(x[j], inverse);
        *(i8 *)(block + 2 + j) = (i8)truncf(__fadd_rn(y, copysignf(0.49999997f, y)));
    }
}

__device__ void encode_q4_0(char *block, const float *x) {
    float most = 0, farthest = 0;
    for (int j = 0; j < 32; j++) {
        if (most < fabsf(x[j])) most = fabsf(x[j]), farthest = x[j];
    }
    float scale = __fdiv_rn(farthest, -8.0f), inverse = scale == 0 ? 0 : __fdiv_rn(1.0f, scale);
    *(u16 *)block = to_f16(scale);
    for (int j = 0; j < 16; j++) {
        int pair[2];
        for (int k = 0; k < 2; k++) {
            float y = __fadd_rn(__fmul_rn(x[j + 16 * k], inverse), 8.5f);
            pair[k] = y < 15 ? (int)truncf(y) : 15;
        }
        *(u8 *)(block + 2 + j) = (u8)(pair[0] | pair[1] << 4);
    }
}

__device__ void encode(char *block, int type, const float *x) {
    if (type == Q8_0) encode_q8_0(block, x);
    else encode_q4_0(block, x);
}

// Moves a block of any type. Blocks are at multiples of their size, or of two bytes if they hold several elements.
__device__ void move(char *to, const char *from, int size) {
    switch (size) {
    case 1: *to = *from; break;
    case 2: *(u16 *)to = *(const u16 *)from; break;
    case 4: *(u32 *)to = *(const u32 *)from; break;
    case 8: *(u64 *)to = *(const u64 *)from; break;
    default:
        if (size % 2) {
            for (int j = 0; j < size; j++) to[j] = from[j];
        } else {
            for (int j = 0; j < size; j += 2) *(u16 *)(to + j) = *(const u16 *)(from + j);
        }
    }
}

struct Place {
    i64 i[4];
};

// The place of an element by its number. Division of short numbers is quicker.
__device__ Place place_of(u64 index, const i64 *ne) {
    Place at;
    if (index >> 32 == 0 && (ne[0] | ne[1] | ne[2]) >> 32 == 0) {
        u32 rest = (u32)index;
#pragma unroll
        for (int d = 0; d < 3; d++) {
            u32 n = (u32)ne[d], next = rest / n;
            at.i[d] = rest - next * n;
            rest = next;
        }
        at.i[3] = rest;
        return at;
    }
#pragma unroll
    for (int d = 0; d < 3; d++) {
        u64 next = index / (u64)ne[d];
        at.i[d] = (i64)(index - next * (u64)ne[d]);
        index = next;
    }
    at.i[3] = (i64)index;
    return at;
}

__device__ i64 offset_of(const Tensor &t, Place at) {
    return at.i[0] * t.nb[0] + at.i[1] * t.nb[1] + at.i[2] * t.nb[2] + at.i[3] * t.nb[3];
}

// The place of a row by its number, with no first index.
__device__ Place row_of(u64 row, const i64 *ne) {
    i64 dims[4] = {ne[1], ne[2], ne[3], 1};
    Place at = place_of(row, dims), out;
    out.i[0] = 0, out.i[1] = at.i[0], out.i[2] = at.i[1], out.i[3] = at.i[2];
    return out;
}

__device__ u64 element() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

#define ALL 0xffffffffu

template <typename T> __device__ T warp_sum(T x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(ALL, x, d);
    return x;
}

__device__ float warp_max(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        float y = __shfl_xor_sync(ALL, x, d);
        x = y > x ? y : x;
    }
    return x;
}

// Over all threads of a block, whole warps of them; each gets the answer.
template <typename T> __device__ T block_sum(T x) {
    __shared__ T parts[32];
    x = warp_sum(x);
    if (blockDim.x == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : (T)0;
    return warp_sum(x);
}

__device__ float block_max(float x) {
    __shared__ float parts[32];
    x = warp_max(x);
    if (blockDim.x == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : -INFINITE;
    return warp_max(x);
}

// The slope of a head (ALiBi): powers of one number for the first heads, odd powers of its root for the others.
__device__ float slope_of(i64 head, i64 heads, float max_bias) {
    if (max_bias <= 0) return 1;
    i64 whole = 1ll << (63 - __clzll(heads));
    float m0 = exp2f(-max_bias / (float)whole), m1 = exp2f(-max_bias / 2 / (float)whole);
    return head < whole ? powf(m0, (float)(head + 1)) : powf(m1, (float)(2 * (head - whole) + 1));
}
