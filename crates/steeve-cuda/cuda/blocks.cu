// Products of weights in blocks with few columns. In kernels of their own, so that the others do not need as many registers
// as these.

template <int R, int C, bool BY_ID> __device__ void few_columns_of_blocks(const ProductParams &a) {
    switch (a.weights.dtype) {
    case Q4_1: few_columns<Q4_1, R, C, BY_ID>(a); break;
    case Q5_0: few_columns<Q5_0, R, C, BY_ID>(a); break;
    case Q5_1: few_columns<Q5_1, R, C, BY_ID>(a); break;
    case MXFP4: few_columns<MXFP4, R, C, BY_ID>(a); break;
    case Q2_K: few_columns<Q2_K, R, C, BY_ID>(a); break;
    case Q3_K: few_columns<Q3_K, R, C, BY_ID>(a); break;
    case Q4_K: few_columns<Q4_K, R, C, BY_ID>(a); break;
    case Q5_K: few_columns<Q5_K, R, C, BY_ID>(a); break;
    default: few_columns<Q6_K, R, C, BY_ID>(a); break;
    }
}

KERNEL(few_columns_blocks_1)(const ProductParams &a) { few_columns_of_blocks<4, 1, false>(a); }
KERNEL(few_columns_blocks_4)(const ProductParams &a) { few_columns_of_blocks<2, 4, false>(a); }
KERNEL(few_columns_blocks_8)(const ProductParams &a) { few_columns_of_blocks<2, 8, false>(a); }
KERNEL(few_columns_blocks_id)(const ProductParams &a) { few_columns_of_blocks<4, 1, true>(a); }
