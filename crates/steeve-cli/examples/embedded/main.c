/* A network without an allocator: one array, and offsets that were planned on another machine.
 *
 *   steeve view net.graph -o net.h
 *   cc -std=c11 -o net main.c -lm && ./net
 *
 * The same layers run twice: in the arena, where tensors share bytes, and with memory of its own for each tensor. The
 * results must be the same to the bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "net.h"

/* All memory that the network needs. */
static union {
    _Alignas(NET_ARENA_ALIGN) unsigned char bytes[NET_ARENA_SIZE];
    float numbers[NET_ARENA_SIZE / sizeof(float)];
} arena;

static float w1[64 * 32], w2[64 * 64], w3[10 * 64];

static void mul_mat(const float *w, const float *x, float *y, int rows, int columns) {
    for (int row = 0; row < rows; row++) {
        float sum = 0.0f;
        for (int column = 0; column < columns; column++) sum += w[row * columns + column] * x[column];
        y[row] = sum;
    }
}

/* Elementwise: each result needs no other element than its own, so `y` may stand on a source. */
static void relu(const float *x, float *y, int count) {
    for (int i = 0; i < count; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

static void add(const float *a, const float *b, float *y, int count) {
    for (int i = 0; i < count; i++) y[i] = a[i] + b[i];
}

static void soft_max(const float *x, float *y, int count) {
    float most = x[0], sum = 0.0f;
    for (int i = 1; i < count; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < count; i++) {
        y[i] = expf(x[i] - most);
        sum += y[i];
    }
    for (int i = 0; i < count; i++) y[i] /= sum;
}

struct tensors {
    float *x, *h1, *a1, *h2, *a2, *s, *l, *y;
};

static void run(const struct tensors *t) {
    mul_mat(w1, t->x, t->h1, 64, 32);
    relu(t->h1, t->a1, 64);
    mul_mat(w2, t->a1, t->h2, 64, 64);
    relu(t->h2, t->a2, 64);
    add(t->a1, t->a2, t->s, 64);
    mul_mat(w3, t->s, t->l, 10, 64);
    soft_max(t->l, t->y, 10);
}

/* Numbers between -1 and 1, the same everywhere. */
static void fill(float *values, int count, unsigned seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

int main(void) {
    static float x[32], h1[64], a1[64], h2[64], a2[64], s[64], l[10], y[10];
    const struct tensors apart = {x, h1, a1, h2, a2, s, l, y};
    const struct tensors planned = {
        NET_AT(arena.bytes, NET_X),  NET_AT(arena.bytes, NET_H1), NET_AT(arena.bytes, NET_A1), NET_AT(arena.bytes, NET_H2),
        NET_AT(arena.bytes, NET_A2), NET_AT(arena.bytes, NET_S),  NET_AT(arena.bytes, NET_L),  NET_AT(arena.bytes, NET_Y),
    };
    const unsigned long all = sizeof x + sizeof h1 + sizeof a1 + sizeof h2 + sizeof a2 + sizeof s + sizeof l + sizeof y;

    fill(w1, 64 * 32, 1u);
    fill(w2, 64 * 64, 2u);
    fill(w3, 10 * 64, 3u);
    for (unsigned round = 0; round < 100; round++) {
        fill(apart.x, 32, round);
        fill(planned.x, 32, round);
        run(&apart);
        run(&planned);
        if (memcmp(apart.y, planned.y, NET_Y_SIZE) != 0) {
            printf("round %u: the results differ\n", round);
            return 1;
        }
    }
    printf("arena of %lu bytes instead of %lu: the same results\n", (unsigned long)NET_ARENA_SIZE, all);
    return 0;
}
