// What a call of ggml's graph allocator costs on a graph that has not changed: ggml's own beside the drop-in, in one process.
//
//   cc -O2 -o per_call per_call.c -ldl
//   ./per_call libggml-base.so libsteeve_ggml.so [layers [rounds]]
//
// Any shared ggml since 0.9.4 will do: Python packages and node-llama-cpp bring one. Its functions are found by name in its
// own object, the drop-in's in the drop-in, so nothing is preloaded and nobody replaces anybody. Each side has an allocator
// and a graph of its own, built by ggml's own builders in the shape of a language model. The sides take turns, and who
// begins changes from round to round; the medians are printed.
//
//   alloc, built anew    the graph is made again before each call (not measured), as most programs do
//   alloc, reset         the same tensors, without their addresses
//   alloc, again         the same tensors, with the addresses of the last call
//   reserve              of the graph that is reserved already: ggml plans it again, the drop-in sees that it is the same
//   new + free           a handle is made and freed again, with nothing in between; ns per pair

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// ggml's structures, as far as they are needed: the start of a tensor has been the same since 0.9.4.
struct context;
struct graph;
struct gallocr;
struct tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
    struct tensor *view_src;
    size_t view_offs;
    void *data;
};
struct init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};
enum { F32 = 0 };

typedef struct tensor *T;
typedef struct context *C;

static C (*init)(struct init_params);
static void (*free_context)(C);
static size_t (*tensor_overhead)(void);
static size_t (*graph_overhead)(size_t, bool);
static struct graph *(*new_graph)(C, size_t, bool);
static void (*expand)(struct graph *, T);
static int (*n_nodes)(struct graph *);
static T (*first_tensor)(C);
static T (*next_tensor)(C, T);
static T (*new_2d)(C, int, int64_t, int64_t);
static T (*mul_mat)(C, T, T);
static T (*add)(C, T, T);
static T (*mul)(C, T, T);
static T (*silu)(C, T);
static T (*rms_norm)(C, T, float);
static T (*soft_max)(C, T);
static T (*reshape_3d)(C, T, int64_t, int64_t, int64_t);
static T (*permute)(C, T, int, int, int, int);
static T (*cont)(C, T);
static T (*cont_2d)(C, T, int64_t, int64_t);
static T (*scale)(C, T, float);
static void (*set_input)(T);
static void (*set_output)(T);
static size_t (*nbytes)(T);
static void *(*cpu_buffer_type)(void);
static void *(*alloc_buffer)(void *, size_t);
static void *(*get_base)(void *);
static int (*tensor_alloc)(void *, T, void *);

struct side {
    const char *name;
    struct gallocr *(*new)(void *);
    void (*free)(struct gallocr *);
    bool (*reserve)(struct gallocr *, struct graph *);
    bool (*alloc)(struct gallocr *, struct graph *);
    size_t (*size)(struct gallocr *, int);
    struct gallocr *gallocr;
    C context;
    struct graph *graph;
    double *times;
};

static void fail(const char *what) {
    fprintf(stderr, "per_call: %s\n", what);
    exit(1);
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "per_call: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "per_call: %s\n", dlerror());
        exit(1);
    }
    return library;
}

static void find_builders(void *ggml) {
    init = symbol(ggml, "ggml_init");
    free_context = symbol(ggml, "ggml_free");
    tensor_overhead = symbol(ggml, "ggml_tensor_overhead");
    graph_overhead = symbol(ggml, "ggml_graph_overhead_custom");
    new_graph = symbol(ggml, "ggml_new_graph_custom");
    expand = symbol(ggml, "ggml_build_forward_expand");
    n_nodes = symbol(ggml, "ggml_graph_n_nodes");
    first_tensor = symbol(ggml, "ggml_get_first_tensor");
    next_tensor = symbol(ggml, "ggml_get_next_tensor");
    new_2d = symbol(ggml, "ggml_new_tensor_2d");
    mul_mat = symbol(ggml, "ggml_mul_mat");
    add = symbol(ggml, "ggml_add");
    mul = symbol(ggml, "ggml_mul");
    silu = symbol(ggml, "ggml_silu");
    rms_norm = symbol(ggml, "ggml_rms_norm");
    soft_max = symbol(ggml, "ggml_soft_max");
    reshape_3d = symbol(ggml, "ggml_reshape_3d");
    permute = symbol(ggml, "ggml_permute");
    cont = symbol(ggml, "ggml_cont");
    cont_2d = symbol(ggml, "ggml_cont_2d");
    scale = symbol(ggml, "ggml_scale");
    set_input = symbol(ggml, "ggml_set_input");
    set_output = symbol(ggml, "ggml_set_output");
    nbytes = symbol(ggml, "ggml_nbytes");
    cpu_buffer_type = symbol(ggml, "ggml_backend_cpu_buffer_type");
    alloc_buffer = symbol(ggml, "ggml_backend_buft_alloc_buffer");
    get_base = symbol(ggml, "ggml_backend_buffer_get_base");
    tensor_alloc = symbol(ggml, "ggml_backend_tensor_alloc");
}

enum { WIDTH = 64, HEADS = 4, HIDDEN = 160, TOKENS = 32, WORDS = 256, PER_LAYER = 9 };

static C new_context(size_t tensors, size_t nodes) {
    struct init_params params = {tensors * tensor_overhead() + (nodes ? graph_overhead(nodes, false) : 0) + 4096, NULL, true};
    C context = init(params);
    if (!context) {
        fail("ggml has made no context");
    }
    return context;
}

static T *new_weights(int layers) {
    static const int shapes[PER_LAYER][2] = {{WIDTH, 1},     {WIDTH, WIDTH}, {WIDTH, WIDTH},  {WIDTH, WIDTH},  {WIDTH, WIDTH},
                                             {WIDTH, 1},     {WIDTH, HIDDEN}, {WIDTH, HIDDEN}, {HIDDEN, WIDTH}};
    int count = layers * PER_LAYER + 1;
    C context = new_context((size_t)count, 0);
    T *weights = calloc((size_t)count, sizeof(T));
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        const int *shape = shapes[i % PER_LAYER];
        weights[i] = i == count - 1 ? new_2d(context, F32, WIDTH, WORDS) : new_2d(context, F32, shape[0], shape[1]);
        bytes += (nbytes(weights[i]) + 127) / 128 * 128;
    }
    void *buffer = alloc_buffer(cpu_buffer_type(), bytes);
    char *at = get_base(buffer);
    for (int i = 0; i < count; i++) {
        tensor_alloc(buffer, weights[i], at);
        at += (nbytes(weights[i]) + 127) / 128 * 128;
    }
    return weights;
}

// Attention and a gated feed-forward network per layer, as language models have them.
static void build(struct side *side, T *weights, int layers) {
    if (side->context) {
        free_context(side->context);
    }
    C c = side->context = new_context((size_t)layers * 40 + 16, (size_t)layers * 40 + 16);
    side->graph = new_graph(c, (size_t)layers * 40 + 16, false);
    T x = new_2d(c, F32, WIDTH, TOKENS);
    set_input(x);
    for (int layer = 0; layer < layers; layer++, weights += PER_LAYER) {
        T n = mul(c, rms_norm(c, x, 1e-5f), weights[0]);
        T q = reshape_3d(c, mul_mat(c, weights[1], n), WIDTH / HEADS, HEADS, TOKENS);
        T k = reshape_3d(c, mul_mat(c, weights[2], n), WIDTH / HEADS, HEADS, TOKENS);
        T v = reshape_3d(c, mul_mat(c, weights[3], n), WIDTH / HEADS, HEADS, TOKENS);
        T kq = mul_mat(c, permute(c, k, 0, 2, 1, 3), permute(c, q, 0, 2, 1, 3));
        kq = soft_max(c, scale(c, kq, 0.25f));
        T kqv = mul_mat(c, cont(c, permute(c, v, 1, 2, 0, 3)), kq);
        x = add(c, x, mul_mat(c, weights[4], cont_2d(c, permute(c, kqv, 0, 2, 1, 3), WIDTH, TOKENS)));
        n = mul(c, rms_norm(c, x, 1e-5f), weights[5]);
        x = add(c, x, mul_mat(c, weights[8], mul(c, silu(c, mul_mat(c, weights[6], n)), mul_mat(c, weights[7], n))));
    }
    T logits = mul_mat(c, weights[0], x);
    set_output(logits);
    expand(side->graph, logits);
}

static void reset(struct side *side) {
    for (T tensor = first_tensor(side->context); tensor; tensor = next_tensor(side->context, tensor)) {
        tensor->data = NULL;
        tensor->buffer = NULL;
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_time(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *times, int count) {
    qsort(times, (size_t)count, sizeof(double), by_time);
    return times[count / 2];
}

enum kind { ANEW, RESET, AGAIN, RESERVE, KINDS };
static const char *const kinds[KINDS] = {"alloc, built anew", "alloc, reset", "alloc, again", "reserve"};

static double call(struct side *side, enum kind kind, T *weights, int layers) {
    if (kind == ANEW) {
        build(side, weights, layers);
    } else if (kind != AGAIN) {
        reset(side);
    }
    bool (*act)(struct gallocr *, struct graph *) = kind == RESERVE ? side->reserve : side->alloc;
    double start = now();
    bool done = act(side->gallocr, side->graph);
    double time = now() - start;
    if (!done) {
        fail("an allocator has refused the graph");
    }
    return time;
}

enum { PAIRS = 64 };

// Nanoseconds for a handle that is made and freed.
static double new_and_free(struct side *side) {
    void *type = cpu_buffer_type();
    double start = now();
    for (int i = 0; i < PAIRS; i++) {
        struct gallocr *gallocr = side->new(type);
        if (!gallocr) {
            fail("there is no allocator");
        }
        side->free(gallocr);
    }
    return (now() - start) / PAIRS;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fail("usage: per_call libggml-base.so libsteeve_ggml.so [layers [rounds]]");
    }
    int layers = argc > 3 ? atoi(argv[3]) : 40;
    int rounds = argc > 4 ? atoi(argv[4]) : 1001;
    if (layers < 1 || layers > 1000 || rounds < 1) {
        fail("layers are 1 to 1000, rounds 1 or more");
    }
    void *libraries[2] = {open_library(argv[1]), open_library(argv[2])};
    find_builders(libraries[0]);
    const char *(*version)(void) = dlsym(libraries[0], "ggml_version");
    T *weights = new_weights(layers);
    struct side sides[2] = {{.name = "ggml"}, {.name = "steeve"}};
    for (int i = 0; i < 2; i++) {
        struct side *side = &sides[i];
        side->new = symbol(libraries[i], "ggml_gallocr_new");
        side->free = symbol(libraries[i], "ggml_gallocr_free");
        side->reserve = symbol(libraries[i], "ggml_gallocr_reserve");
        side->alloc = symbol(libraries[i], "ggml_gallocr_alloc_graph");
        side->size = symbol(libraries[i], "ggml_gallocr_get_buffer_size");
        side->gallocr = side->new(cpu_buffer_type());
        side->times = calloc((size_t)rounds, sizeof(double));
        if (!side->gallocr || !side->times) {
            fail("there is no allocator");
        }
        build(side, weights, layers);
        if (!side->reserve(side->gallocr, side->graph)) {
            fail("an allocator has refused the graph");
        }
    }
    int nodes = n_nodes(sides[0].graph);
    printf("ggml %s, %d nodes, ns per node (medians of %d): ggml, steeve, ratio\n", version ? version() : "of an unknown version",
           nodes, rounds);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        for (int round = 0; round < rounds; round++) {
            for (int turn = 0; turn < 2; turn++) {
                struct side *side = &sides[(turn + round) % 2];
                side->times[round] = call(side, kind, weights, layers);
            }
        }
        double ggml = median(sides[0].times, rounds) / nodes, steeve = median(sides[1].times, rounds) / nodes;
        printf("%-18s %7.2f %7.2f %6.3f\n", kinds[kind], ggml, steeve, steeve / ggml);
    }
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            struct side *side = &sides[(turn + round) % 2];
            side->times[round] = new_and_free(side);
        }
    }
    double ggml = median(sides[0].times, rounds), steeve = median(sides[1].times, rounds);
    printf("%-18s %7.0f %7.0f %6.3f\n", "new + free", ggml, steeve, steeve / ggml);
    printf("%-18s %7zu %7zu %6.3f\n", "bytes", sides[0].size(sides[0].gallocr, 0), sides[1].size(sides[1].gallocr, 0),
           (double)sides[1].size(sides[1].gallocr, 0) / (double)sides[0].size(sides[0].gallocr, 0));
    return 0;
}
