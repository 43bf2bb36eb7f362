/* Made by steeve 0.1.0 from many.csv: plan again instead of editing.
 * Offsets are from the start of an arena, which must be aligned as *_ARENA_ALIGN says. */
#ifndef MY_APP_H
#define MY_APP_H

/* memory, buffer 0: 10.86 KiB for 4 tensors. */
#define MY_APP_0_ARENA_SIZE 11120u
#define MY_APP_0_ARENA_ALIGN 1u
#define MY_APP_B1_OFFSET 371u /* b1: step 0 to 1 */
#define MY_APP_B1_SIZE 3u
#define MY_APP_B2_OFFSET 0u /* b2: step 0 to 0 */
#define MY_APP_B2_SIZE 1u
#define MY_APP_B5_OFFSET 0u /* b5: step 1 to 1 */
#define MY_APP_B5_SIZE 371u
#define MY_APP_B9_OFFSET 0u /* b9: step 3 to 9 */
#define MY_APP_B9_SIZE 11120u

/* memory, buffer 1: 4.91 KiB for 1 tensor. */
#define MY_APP_1_ARENA_SIZE 5030u
#define MY_APP_1_ARENA_ALIGN 1u
#define MY_APP_B10_OFFSET 0u /* b10: step 3 to 7 */
#define MY_APP_B10_SIZE 5030u

/* memory, buffer 2: 2.62 KiB for 7 tensors. */
#define MY_APP_2_ARENA_SIZE 2688u
#define MY_APP_2_ARENA_ALIGN 1u
#define MY_APP_B0_OFFSET 0u /* b0: step 0 to 8 */
#define MY_APP_B0_SIZE 1329u
#define MY_APP_B3_OFFSET 2147u /* b3: step 1 to 5 */
#define MY_APP_B3_SIZE 435u
#define MY_APP_B4_OFFSET 2681u /* b4: step 1 to 3 */
#define MY_APP_B4_SIZE 5u
#define MY_APP_B6_OFFSET 2582u /* b6: step 2 to 4 */
#define MY_APP_B6_SIZE 88u
#define MY_APP_B7_OFFSET 1329u /* b7: step 2 to 9 */
#define MY_APP_B7_SIZE 818u
#define MY_APP_B8_OFFSET 2686u /* b8: step 2 to 5 */
#define MY_APP_B8_SIZE 2u
#define MY_APP_B11_OFFSET 2670u /* b11: step 3 to 11 */
#define MY_APP_B11_SIZE 11u

/* Where a tensor is located in an arena: MY_APP_AT(arena, MY_APP_NAME). */
#define MY_APP_AT(arena, tensor) ((void *)((unsigned char *)(arena) + tensor##_OFFSET))

#endif
