/* Made by steeve 0.1.0 from layer.graph: plan again instead of editing.
 * Offsets are from the start of an arena, which must be aligned as *_ARENA_ALIGN says. */
#ifndef LAYER_H
#define LAYER_H

/* gpu, buffer 0: 7.25 KiB for 13 tensors. */
#define LAYER_GPU_ARENA_SIZE 7424u
#define LAYER_GPU_ARENA_ALIGN 128u
#define LAYER_MASK_OFFSET 2048u /* mask: f32[8,8], node -1 to 4 */
#define LAYER_MASK_SIZE 256u
#define LAYER_EMBD_OFFSET 0u /* embd: f32[32,8], node -1 to 5 */
#define LAYER_EMBD_SIZE 1024u
#define LAYER_NORM_0_OFFSET 2304u /* norm-0: f32[32,8], rms_norm, node 0 to 2 */
#define LAYER_NORM_0_SIZE 1024u
#define LAYER_QCUR_0_OFFSET 6144u /* Qcur-0: f32[32,8], mul_mat, node 1 to 4 */
#define LAYER_QCUR_0_SIZE 1024u
#define LAYER_KCUR_0_OFFSET 1024u /* Kcur-0: f32[32,8], mul_mat, node 2 to 3 */
#define LAYER_KCUR_0_SIZE 1024u
#define LAYER_KQ_0_OFFSET 7168u /* kq-0: f32[8,8], mul_mat, node 3 to 3 */
#define LAYER_KQ_0_SIZE 256u
#define LAYER_KQ_SOFT_MAX_0_OFFSET 7168u /* kq_soft_max-0: f32[8,8], soft_max, node 4 to 11 */
#define LAYER_KQ_SOFT_MAX_0_SIZE 256u
#define LAYER_ATTN_OUT_0_OFFSET 6144u /* attn_out-0: f32[32,8], add, node 5 to 10 */
#define LAYER_ATTN_OUT_0_SIZE 1024u
#define LAYER_FFN_UP_0_OFFSET 3072u /* ffn_up-0: f32[96,8], mul_mat, node 6 to 8 */
#define LAYER_FFN_UP_0_SIZE 3072u
#define LAYER_FFN_GATE_0_OFFSET 0u /* ffn_gate-0: f32[96,8], mul_mat, node 7 to 7 */
#define LAYER_FFN_GATE_0_SIZE 3072u
#define LAYER_FFN_SWIGLU_0_OFFSET 0u /* ffn_swiglu-0: f32[96,8], swiglu, node 8 to 9 */
#define LAYER_FFN_SWIGLU_0_SIZE 3072u
#define LAYER_FFN_OUT_0_OFFSET 3072u /* ffn_out-0: f32[32,8], mul_mat, node 9 to 9 */
#define LAYER_FFN_OUT_0_SIZE 1024u
#define LAYER_L_OUT_0_OFFSET 3072u /* l_out-0: f32[32,8], add, node 10 to 11 */
#define LAYER_L_OUT_0_SIZE 1024u

/* host, buffer 0: 32 B for 2 tensors. */
#define LAYER_HOST_ARENA_SIZE 32u
#define LAYER_HOST_ARENA_ALIGN 32u
#define LAYER_TOKENS_OFFSET 0u /* tokens: i32[8], node -1 to 10 */
#define LAYER_TOKENS_SIZE 32u
#define LAYER_SHIFTED_OFFSET 0u /* shifted: i32[8], neg, node 11 to 11 */
#define LAYER_SHIFTED_SIZE 32u

/* Where a tensor is located in an arena: LAYER_AT(arena, LAYER_NAME). */
#define LAYER_AT(arena, tensor) ((void *)((unsigned char *)(arena) + tensor##_OFFSET))

#endif
