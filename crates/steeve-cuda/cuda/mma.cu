// Products by tensor cores.
//
//   lane 4g + c of a warp has of a product's 16 x 8 elements:      row g: columns 2c, 2c + 1; row g + 8: the same
//   of its left factor, 16 x 16:                                  those, and those 8 columns further
//   of its right one, 16 x 8:                                     column g: rows 2c, 2c + 1, and those 8 rows further

#if __CUDA_ARCH__ >= 800

// Two numbers side by side, the first of them in the lower half.
template <int TYPE> __device__ u32 pair_of(float x, float y) {
    u32 pair;
    if (TYPE == F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
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

#endif
