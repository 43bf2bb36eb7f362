// Products of experts with many rows, by tensor cores.
//
// First one block sorts what experts get: a job is an expert and up to 64 of its columns, which are slots of tokens. `lists` has
// the number of jobs, the jobs, the columns of all experts one behind another, and for each expert where its next one goes (in
// shared memory where that has room for all):
//
//   | count, 3 unused | jobs: 4 numbers each | columns | ends |
//
// Then a block does 128 rows of weights for a job, 32 elements at a time: while these are multiplied the next ones are read,
// and put into the other half of shared memory. The second source has been rounded to the type of the products.

#define EXPERT_ROWS 128
#define EXPERT_COLUMNS 64
#define EXPERT_DEEP 32
// Bytes from row to row in shared memory: 8 rows of 16 bytes are in different banks.
#define EXPERT_PITCH 80

struct Job {
    int expert, first, count, unused;
};

__device__ Job *jobs_of(const ExpertParams &a) { return (Job *)(a.lists + 4); }
__device__ int *columns_of(const ExpertParams &a) { return a.lists + 4 + 4 * a.most_jobs; }

// The expert of a column; less than zero where an id names none.
__device__ int expert_of(const ExpertParams &a, i64 column) {
    i64 used = a.ids.ne[0], slot = column % used, token = column / used;
    i64 id = *(const int *)(a.ids.data + slot * a.ids.nb[0] + token * a.ids.nb[1]);
    if (id >= 0 && id < a.weights.ne[2]) return (int)id;
    report(a.asserts, id);
    return -1;
}

// Sums over the threads up to each, of a block of 1024.
__device__ u64 sum_up_to(u64 x) {
    __shared__ u64 warps[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        u64 y = __shfl_up_sync(ALL, x, d);
        if (lane >= d) x += y;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    for (int j = 0; j < warp; j++) x += warps[j];
    return x;
}

// One block of 1024 threads.
KERNEL_WITHIN(experts_sort, __launch_bounds__(1024))(const ExpertParams &a) {
    __shared__ int shared_ends[1024];
    __shared__ u64 carried;
    i64 all = a.ids.ne[0] * a.ids.ne[1];
    int experts = (int)a.weights.ne[2], *columns = columns_of(a);
    int *ends = experts <= 1024 ? shared_ends : columns + all;
    for (int e = threadIdx.x; e < experts; e += 1024) ends[e] = 0;
    if (threadIdx.x == 0) carried = 0;
    __syncthreads();
    for (i64 column = threadIdx.x; column < all; column += 1024) {
        int expert = expert_of(a, column);
        if (expert >= 0) atomicAdd(&ends[expert], 1);
    }
    __syncthreads();
    // Columns and jobs of all experts ahead, in the lower and the upper half.
    for (int first = 0; first < experts; first += 1024) {
        int expert = first + threadIdx.x, count = expert < experts ? ends[expert] : 0;
        u64 mine = (u32)count | (u64)((count + EXPERT_COLUMNS - 1) / EXPERT_COLUMNS) << 32, sum = sum_up_to(mine) + carried;
        int start = (int)(u32)(sum - mine);
        Job *jobs = jobs_of(a) + ((sum - mine) >> 32);
        for (int done = 0; done < count; done += EXPERT_COLUMNS) {
            int rest = count - done;
            *jobs++ = {expert, start + done, rest < EXPERT_COLUMNS ? rest : EXPERT_COLUMNS, 0};
        }
        if (expert < experts) ends[expert] = start;
        __syncthreads();
        if (threadIdx.x == 1023) carried = sum;
        __syncthreads();
    }
    if (threadIdx.x == 0) a.lists[0] = (int)(carried >> 32);
    for (i64 column = threadIdx.x; column < all; column += 1024) {
        int expert = expert_of(a, column);
        if (expert >= 0) columns[atomicAdd(&ends[expert], 1)] = (int)column;
    }
}

#if __CUDA_ARCH__ >= 800

// Four elements of each of four rows, in pairs.
template <int DTYPE> __device__ __forceinline__ void read_blocks(const char *const (&rows)[4], i64 at, u32 (&pairs)[8]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        Four four;
        if constexpr (DTYPE == Q8_0 || DTYPE == Q4_0) four = load4_at(rows[j], DTYPE, at);
        else four = floats_at<DTYPE>(rows[j], at);
        pairs[2 * j] = pair_of<F16>(four.x[0], four.x[1]);
        pairs[2 * j + 1] = pair_of<F16>(four.x[2], four.x[3]);
    }
}

// Four elements of each of four rows of blocks. The compiler knows the type where it reads, so that all reads are on their way
// before anything is used.
__device__ __forceinline__ void read_any_blocks(const char *const (&rows)[4], int dtype, i64 at, u32 (&pairs)[8]) {
    switch (dtype) {
    case Q8_0: read_blocks<Q8_0>(rows, at, pairs); break;
    case Q4_0: read_blocks<Q4_0>(rows, at, pairs); break;
    case Q4_1: read_blocks<Q4_1>(rows, at, pairs); break;
    case Q5_0: read_blocks<Q5_0>(rows, at, pairs); break;
    case Q5_1: read_blocks<Q5_1>(rows, at, pairs); break;
    case MXFP4: read_blocks<MXFP4>(rows, at, pairs); break;
    case Q2_K: read_blocks<Q2_K>(rows, at, pairs); break;
    case Q3_K: read_blocks<Q3_K>(rows, at, pairs); break;
    case Q4_K: read_blocks<Q4_K>(rows, at, pairs); break;
    case Q5_K: read_blocks<Q5_K>(rows, at, pairs); break;
    default: read_blocks<Q6_K>(rows, at, pairs); break;
    }
}

// 256 threads: four warps have 32 rows each of the left half of the columns, four others of the right one.
template <int TYPE> __device__ __forceinline__ void expert_product(const ExpertParams &a) {
    __shared__ __align__(16) char left[2][EXPERT_ROWS * EXPERT_PITCH], right[2][EXPERT_COLUMNS * EXPERT_PITCH];
    __shared__ const char *inputs[EXPERT_COLUMNS];
    __shared__ char *results[EXPERT_COLUMNS];
    __shared__ float powers[EXPERT_COLUMNS];
    const Tensor &w = a.weights, &x = a.inputs, &r = a.result;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_part = warp % 4 * 32, column_part = warp / 4 * 32;
    i64 first = (i64)blockIdx.x * EXPERT_ROWS, k = w.ne[0];
    // What of each piece this thread reads: eight numbers of two bytes side by side of two rows, or four elements of blocks of four
    // rows. Neighbours have the same row, so that what a warp reads at once is in few lines of the cache.
    bool has_blocks = w.dtype != TYPE;
    int lanes = has_blocks ? 8 : 4, left_row = warp * 16 + lane / lanes, left_at = lane % lanes * (32 / lanes);
    int right_row = threadIdx.x / 4, right_at = threadIdx.x % 4 * 8;
    u32 left_base = (u32)__cvta_generic_to_shared(left), right_base = (u32)__cvta_generic_to_shared(right);
    u32 left_from = (row_part + lane % 16) * EXPERT_PITCH + lane / 16 * 16;
    u32 right_from = (column_part + lane / 16 * 8 + lane % 8) * EXPERT_PITCH + lane / 8 % 2 * 16;
    for (int number = blockIdx.y, count = a.lists[0]; number < count; number += gridDim.y) {
        Job job = jobs_of(a)[number];
        __syncthreads();
        if (threadIdx.x < EXPERT_COLUMNS) {
            // Those beyond the last are done again, and not written.
            int at = threadIdx.x < job.count ? threadIdx.x : job.count - 1;
            i64 column = columns_of(a)[job.first + at], slot = column % a.ids.ne[0], token = column / a.ids.ne[0];
            inputs[threadIdx.x] = x.data + slot % x.ne[1] * x.nb[1] + token * x.nb[2];
            results[threadIdx.x] = r.data + slot * r.nb[1] + token * r.nb[2];
            powers[threadIdx.x] = a.powers ? a.powers[slot % x.ne[1] + token * x.ne[1]] : 1;
        }
        __syncthreads();
        const char *rows[4], *input = inputs[right_row];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            // Those beyond the last are not written.
            i64 row = first + left_row + j * (32 / lanes);
            rows[j] = w.data + job.expert * w.nb[2] + (row < w.ne[1] ? row : w.ne[1] - 1) * w.nb[1];
        }
        float sums[2][4][4] = {};
        u32 pairs[8];
        uint4 eight;
        auto read = [&](i64 deep) {
#pragma unroll
            for (int j = 0; j < 8; j++) pairs[j] = 0;
            // Rows of blocks are multiples of 32 long, those of floats multiples of 8.
            if (deep + left_at < k) {
                if (TYPE == F16 && has_blocks) read_any_blocks(rows, w.dtype, deep + left_at, pairs);
                else {
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        uint4 four = *(const uint4 *)(rows[j] + (deep + left_at) * 2);
                        pairs[4 * j] = four.x, pairs[4 * j + 1] = four.y, pairs[4 * j + 2] = four.z, pairs[4 * j + 3] = four.w;
                    }
                }
            }
            eight = deep + right_at < k ? *(const uint4 *)(input + (deep + right_at) * 2) : make_uint4(0, 0, 0, 0);
        };
        auto put = [&](int half) {
            char *to = left[half] + left_row * EXPERT_PITCH + left_at * 2;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (has_blocks) *(uint2 *)(to + j * 4 * EXPERT_PITCH) = make_uint2(pairs[2 * j], pairs[2 * j + 1]);
                else if (j < 2) *(uint4 *)(to + j * 8 * EXPERT_PITCH) = make_uint4(pairs[4 * j], pairs[4 * j + 1], pairs[4 * j + 2], pairs[4 * j + 3]);
            }
            *(uint4 *)(right[half] + right_row * EXPERT_PITCH + right_at * 2) = eight;
        };
        read(0);
        put(0);
        __syncthreads();
        int half = 0;
        for (i64 deep = 0; deep < k; deep += EXPERT_DEEP, half ^= 1) {
            bool is_last = deep + EXPERT_DEEP >= k;
            if (!is_last) read(deep + EXPERT_DEEP);
#pragma unroll
            for (int i = 0; i < EXPERT_DEEP / 16; i++) {
                u32 u[2][4], v[2][4];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    fetch(u[j], left_base + half * EXPERT_ROWS * EXPERT_PITCH + left_from + j * 16 * EXPERT_PITCH + i * 32);
                    fetch(v[j], right_base + half * EXPERT_COLUMNS * EXPERT_PITCH + right_from + j * 16 * EXPERT_PITCH + i * 32);
                }
#pragma unroll
                for (int m = 0; m < 2; m++) {
#pragma unroll
                    for (int n = 0; n < 4; n++) multiply<TYPE>(sums[m][n], u[m], &v[n / 2][n % 2 * 2]);
                }
            }
            if (!is_last) put(half ^ 1);
            __syncthreads();
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    i64 at = first + row_part + m * 16 + lane / 4 + e / 2 * 8;
                    int column = column_part + n * 8 + lane % 4 * 2 + e % 2;
                    if (at < w.ne[1] && column < job.count) *(float *)(results[column] + at * r.nb[0]) = sums[m][n][e] * powers[column];
                }
            }
        }
    }
}

#define EXPERTS(TYPE) { expert_product<TYPE>(a); }

#else

// They are never launched.
#define EXPERTS(TYPE) {}

#endif

// Blocks: rows, jobs.
KERNEL_WITHIN(experts_f16, __launch_bounds__(256, 2))(const ExpertParams &a) EXPERTS(F16)
KERNEL_WITHIN(experts_bf16, __launch_bounds__(256, 2))(const ExpertParams &a) EXPERTS(BF16)
