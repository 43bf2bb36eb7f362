// What all kernels of attention share.

#define WARPS 4

// The elements of a row that a lane has: R side by side. What is beyond the row is not read.
// With a type that is known to the compiler it is in fours, and all reads are on their way before anything is used.
template <int TYPE, int R>
__device__ void read_row(const char *row, const Tensor &t, int lane, int length, i64 in_fours, float *x) {
#pragma unroll
    for (int r = 0; r < R; r += 4) {
        int i = lane * R + r;
        if (TYPE != ANY || in_fours) {
            // Lanes beyond the row read its start.
            Four four = load4_at(row, TYPE != ANY ? TYPE : t.dtype, i < length ? i : 0);
#pragma unroll
            for (int e = 0; e < 4; e++) x[r + e] = four.x[e];
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++) x[r + e] = i + e < length ? load_at(row, t.dtype, t.nb[0], i + e) : 0;
        }
    }
}

// What the sums of a query are multiplied by in the end. A sink is one more score, with no value.
__device__ float factor_of(const AttentionParams &a, i64 head, float most, float total) {
    if (!a.sinks.data) return total == 0 ? 0 : 1 / total;
    float sink = *(const float *)(a.sinks.data + head * a.sinks.nb[0]);
    float larger = sink > most ? sink : most, base = larger == -INFINITE ? 0 : larger;
    float grown = expf(most - base);
    total = total * grown + expf(sink - base);
    return total == 0 ? 0 : grown / total;
}
