/* Made by steeve 0.1.0 from net.graph: plan again instead of editing.
 * Offsets are from the start of an arena, which must be aligned as *_ARENA_ALIGN says. */
#ifndef NET_H
#define NET_H

/* sram: 512 B for 8 tensors. */
#define NET_ARENA_SIZE 512u
#define NET_ARENA_ALIGN 16u
#define NET_X_OFFSET 256u /* x: f32[32], node -1 to 0 */
#define NET_X_SIZE 128u
#define NET_H1_OFFSET 0u /* h1: f32[64], mul_mat, node 0 to 0 */
#define NET_H1_SIZE 256u
#define NET_A1_OFFSET 0u /* a1: f32[64], relu, node 1 to 3 */
#define NET_A1_SIZE 256u
#define NET_H2_OFFSET 256u /* h2: f32[64], mul_mat, node 2 to 2 */
#define NET_H2_SIZE 256u
#define NET_A2_OFFSET 256u /* a2: f32[64], relu, node 3 to 4 */
#define NET_A2_SIZE 256u
#define NET_S_OFFSET 0u /* s: f32[64], add, node 4 to 5 */
#define NET_S_SIZE 256u
#define NET_L_OFFSET 256u /* l: f32[10], mul_mat, node 5 to 5 */
#define NET_L_SIZE 40u
#define NET_Y_OFFSET 256u /* y: f32[10], soft_max, node 6 to 6 */
#define NET_Y_SIZE 40u

/* Where a tensor is located in an arena: NET_AT(arena, NET_NAME). */
#define NET_AT(arena, tensor) ((void *)((unsigned char *)(arena) + tensor##_OFFSET))

#endif
