// The same functions as those of the test's own ggml, from a real one that is loaded at run time, with a stand-in backend: a
// buffer type with a limit for each buffer and for all, whose buffers are counted. Any shared ggml since 0.9.4 will do.
// `ggml_gallocr_*` are the drop-in's, `ggmls.*` the real ggml's own. Nothing is preloaded and nothing replaces anything.
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What ggml's allocator and the drop-in have in common.
struct graph_allocator {
    ggml_gallocr_t (*new_n)(ggml_backend_buffer_type_t * bufts, int n_bufs);
    void (*free)(ggml_gallocr_t galloc);
    bool (*reserve_n)(ggml_gallocr_t galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids);
    bool (*alloc_graph)(ggml_gallocr_t galloc, struct ggml_cgraph * graph);
    size_t (*get_buffer_size)(ggml_gallocr_t galloc, int buffer_id);
};

static struct graph_allocator ggmls, ours;

static inline ggml_gallocr_t ggml_gallocr_new_n(ggml_backend_buffer_type_t * bufts, int n_bufs) { return ours.new_n(bufts, n_bufs); }
static inline ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft) { return ours.new_n(&buft, 1); }
static inline void ggml_gallocr_free(ggml_gallocr_t galloc) { ours.free(galloc); }
static inline bool ggml_gallocr_reserve_n(ggml_gallocr_t galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids) {
    return ours.reserve_n(galloc, graph, node_ids, leaf_ids);
}
static inline bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph * graph) { return ours.reserve_n(galloc, graph, NULL, NULL); }
static inline bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph * graph) { return ours.alloc_graph(galloc, graph); }
static inline size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int buffer_id) { return ours.get_buffer_size(galloc, buffer_id); }

// A buffer's functions: to free it and where it begins. What follows has changed from version to version and may be missing.
struct stand_in_interface { void * words[24]; };

static struct ggml_context * (*ggml_init)(struct ggml_init_params params);
static void (*ggml_free)(struct ggml_context * ctx);
static struct ggml_tensor * (*ggml_new_tensor_2d)(struct ggml_context * ctx, int type, int64_t ne0, int64_t ne1);
static struct ggml_tensor * (*ggml_view_1d)(struct ggml_context * ctx, struct ggml_tensor * a, int64_t ne0, size_t offset);
static void (*ggml_set_input)(struct ggml_tensor * tensor);
static void (*ggml_set_output)(struct ggml_tensor * tensor);
static size_t (*ggml_nbytes)(const struct ggml_tensor * tensor);
static struct ggml_cgraph * (*ggml_new_graph_custom)(struct ggml_context * ctx, size_t size, bool grads);
static const char * (*ggml_op_name)(int op);
static size_t (*ggml_backend_buft_get_alloc_size)(ggml_backend_buffer_type_t buft, const struct ggml_tensor * tensor);
// The interface is passed by value. One that is too long is no harm: it is on the stack, or behind a pointer.
static ggml_backend_buffer_t (*ggml_backend_buffer_init)(ggml_backend_buffer_type_t buft, struct stand_in_interface interface, void * context, size_t size);

// operations

enum { OP_NONE, OP_ADD, OP_MUL, OP_SCALE, OP_MUL_MAT, OP_CPY, OP_RESHAPE, OP_VIEW, OP_UNARY, OP_CUSTOM, OPS };

// ggml's numbers, which differ from version to version.
static int op_numbers[OPS];

#define GGML_OP_NONE op_numbers[OP_NONE]
#define GGML_OP_ADD op_numbers[OP_ADD]
#define GGML_OP_MUL op_numbers[OP_MUL]
#define GGML_OP_SCALE op_numbers[OP_SCALE]
#define GGML_OP_MUL_MAT op_numbers[OP_MUL_MAT]
#define GGML_OP_CPY op_numbers[OP_CPY]
#define GGML_OP_RESHAPE op_numbers[OP_RESHAPE]
#define GGML_OP_VIEW op_numbers[OP_VIEW]
#define GGML_OP_UNARY op_numbers[OP_UNARY]
#define GGML_OP_GLU (-1)
#define GGML_OP_FANCY op_numbers[OP_CUSTOM]

static void find_ops(void) {
    static const char * const names[OPS] = { "NONE", "ADD", "MUL", "SCALE", "MUL_MAT", "CPY", "RESHAPE", "VIEW", "UNARY", "CUSTOM" };
    int found = 0;
    // Until all are found: what is behind the last one must not be asked for.
    for (int number = 0; found < OPS; number++) {
        const char * name = ggml_op_name(number);
        for (int op = 0; op < OPS; op++) {
            if (strcmp(name, names[op]) == 0) op_numbers[op] = number, found++;
        }
    }
}

// tensors and graphs

static inline size_t mock_nbytes(const struct ggml_tensor * tensor) { return ggml_nbytes(tensor); }

static inline struct ggml_tensor * mock_tensor(struct ggml_context * ctx, int type, int op, int64_t ne0, int64_t ne1, struct ggml_tensor * a, struct ggml_tensor * b) {
    struct ggml_tensor * tensor = ggml_new_tensor_2d(ctx, type, ne0, ne1);
    tensor->op = op, tensor->src[0] = a, tensor->src[1] = b;
    return tensor;
}

static inline struct ggml_cgraph * mock_graph(struct ggml_context * ctx, int size) { return ggml_new_graph_custom(ctx, size, false); }

// the stand-in backend

struct stand_in_buffer { ggml_backend_buffer_type_t buft; size_t size; void * memory; };

static struct mock_counts { int buffers_made, buffers_alive; } stand_in_counts;
static inline struct mock_counts * mock_counts(void) { return &stand_in_counts; }

// Which word of ggml's buffer is the context that it was made with.
static int context_word;

static struct stand_in_buffer * stand_in(ggml_backend_buffer_t buffer) { return ((struct stand_in_buffer **) buffer)[context_word]; }

static void * buffer_base(ggml_backend_buffer_t buffer) { return stand_in(buffer)->memory; }

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct stand_in_buffer * it = stand_in(buffer);
    it->buft->buffers--;
    it->buft->alive -= it->size;
    if (it->buft->device) it->buft->device->alive -= it->size;
    // Who still reads or writes there is noticed.
    memset(it->memory, 0xDD, it->size);
    free(it->memory);
    free(it);
    stand_in_counts.buffers_alive--;
}

static const char * type_name(ggml_backend_buffer_type_t buft) { return buft->name; }
static size_t type_alignment(ggml_backend_buffer_type_t buft) { return buft->alignment; }
static size_t type_max_size(ggml_backend_buffer_type_t buft) { return buft->max_size; }
static size_t type_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor * tensor) { return ggml_nbytes(tensor) + buft->padding; }
static bool type_is_host(ggml_backend_buffer_type_t buft) { return strcmp(buft->name, "CPU") == 0; }

static ggml_backend_buffer_t type_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    if (size > (size_t) 1 << 32 || size > buft->max_size) return NULL;
    if (buft->device && size > buft->device->total - buft->device->alive) return NULL;
    struct stand_in_buffer * it = calloc(1, sizeof *it);
    it->buft = buft, it->size = size;
    it->memory = aligned_alloc(buft->alignment, (size + buft->alignment) / buft->alignment * buft->alignment);
    buft->made++;
    buft->buffers++;
    buft->alive += size;
    if (buft->device) buft->device->alive += size;
    stand_in_counts.buffers_made++;
    stand_in_counts.buffers_alive++;
    struct stand_in_interface interface = { { (void *) buffer_free, (void *) buffer_base } };
    return ggml_backend_buffer_init(buft, interface, it, size);
}

#define FOUR_TYPES \
    { { NULL }, "CPU", 32, SIZE_MAX, 0, 0, 0, 0, NULL }, { { NULL }, "CPU", 64, SIZE_MAX, 0, 0, 0, 0, NULL }, \
    { { NULL }, "GPU", 256, SIZE_MAX, 0, 0, 0, 0, NULL }, { { NULL }, "GPU", 16, SIZE_MAX, 0, 0, 0, 0, NULL }

// Four for each allocator that is looked at.
static struct ggml_backend_buffer_type stand_in_types[12] = { FOUR_TYPES, FOUR_TYPES, FOUR_TYPES };
static inline ggml_backend_buffer_type_t mock_type(int index) { return &stand_in_types[index]; }

// loading

static void * open_library(const char * path) {
    void * library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return library;
}

static void * symbol(void * library, const char * name) {
    void * found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

static struct graph_allocator allocator_of(void * library) {
    struct graph_allocator it;
    *(void **) &it.new_n = symbol(library, "ggml_gallocr_new_n");
    *(void **) &it.free = symbol(library, "ggml_gallocr_free");
    *(void **) &it.reserve_n = symbol(library, "ggml_gallocr_reserve_n");
    *(void **) &it.alloc_graph = symbol(library, "ggml_gallocr_alloc_graph");
    *(void **) &it.get_buffer_size = symbol(library, "ggml_gallocr_get_buffer_size");
    return it;
}

// How often something else than the drop-in's own plans was used.
static int fallbacks;

// Both say when there is no memory, which is what is tested here.
static void quietly(int level, const char * text, void * user_data) {
    (void) level, (void) user_data;
    bool expected = !strstr(text, "steeve: ") || strstr(text, "failed to allocate");
    if (expected) return;
    fallbacks++;
    fputs(text, stderr);
}

// A function for each word of a buffer type, which says which one it is. No tensor is larger than that.
enum { PROBES = 12, PROBED = 1 << 12 };
#define PROBE(word) static size_t probe_##word(void) { return PROBED + word; }
PROBE(0) PROBE(1) PROBE(2) PROBE(3) PROBE(4) PROBE(5) PROBE(6) PROBE(7) PROBE(8) PROBE(9) PROBE(10) PROBE(11)
static size_t (* const probes[PROBES])(void) = {
    probe_0, probe_1, probe_2, probe_3, probe_4, probe_5, probe_6, probe_7, probe_8, probe_9, probe_10, probe_11,
};

// Finds out which of a buffer type's words ggml calls for what, and gives the stand-in's types their functions. The others are
// optional.
static void fit_types(void * ggml) {
    struct ggml_backend_buffer_type probe = { .name = "probe" };
    for (int word = 0; word < PROBES; word++) probe.words[word] = (void *) probes[word];
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) { 1 << 14, NULL, true });
    const struct ggml_tensor * tensor = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 7, 5);
    static const struct { const char * name; void * function; } functions[6] = {
        { "ggml_backend_buft_name", (void *) type_name }, { "ggml_backend_buft_alloc_buffer", (void *) type_alloc_buffer },
        { "ggml_backend_buft_get_alignment", (void *) type_alignment }, { "ggml_backend_buft_get_max_size", (void *) type_max_size },
        { "ggml_backend_buft_get_alloc_size", (void *) type_alloc_size }, { "ggml_backend_buft_is_host", (void *) type_is_host },
    };
    unsigned seen = 0;
    for (int i = 0; i < 6; i++) {
        // A size or a tensor as second argument, which most do not look at; some answer a truth value.
        size_t (*ask)(ggml_backend_buffer_type_t, const void *);
        *(void **) &ask = symbol(ggml, functions[i].name);
        size_t word = ask(&probe, tensor) % 256;
        if (word >= PROBES || seen >> word & 1) {
            fprintf(stderr, "%s: this ggml's buffer types are not understood\n", functions[i].name);
            exit(2);
        }
        seen |= 1u << word;
        for (int type = 0; type < 12; type++) mock_type(type)->words[word] = functions[i].function;
    }
    ggml_free(ctx);
}

// Finds the word of ggml's buffers that is the context which they were made with.
static void fit_buffers(void * ggml) {
    static struct stand_in_buffer marker;
    marker.buft = mock_type(0);
    struct stand_in_interface interface = { { NULL, (void *) buffer_base } };
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(mock_type(0), interface, &marker, 0);
    while (stand_in(buffer) != &marker) context_word++;
    void (*buffer_free)(ggml_backend_buffer_t);
    *(void **) &buffer_free = symbol(ggml, "ggml_backend_buffer_free");
    buffer_free(buffer);
}

// Opens the libraries, and returns the ggml's version.
static const char * load_real(const char * ggml_path, const char * steeve_path) {
    void * ggml = open_library(ggml_path), * steeve = open_library(steeve_path);
    ggmls = allocator_of(ggml), ours = allocator_of(steeve);
    *(void **) &ggml_init = symbol(ggml, "ggml_init");
    *(void **) &ggml_free = symbol(ggml, "ggml_free");
    *(void **) &ggml_new_tensor_2d = symbol(ggml, "ggml_new_tensor_2d");
    *(void **) &ggml_view_1d = symbol(ggml, "ggml_view_1d");
    *(void **) &ggml_set_input = symbol(ggml, "ggml_set_input");
    *(void **) &ggml_set_output = symbol(ggml, "ggml_set_output");
    *(void **) &ggml_nbytes = symbol(ggml, "ggml_nbytes");
    *(void **) &ggml_new_graph_custom = symbol(ggml, "ggml_new_graph_custom");
    *(void **) &ggml_op_name = symbol(ggml, "ggml_op_name");
    *(void **) &ggml_backend_buft_get_alloc_size = symbol(ggml, "ggml_backend_buft_get_alloc_size");
    *(void **) &ggml_backend_buffer_init = symbol(ggml, "ggml_backend_buffer_init");
    void (*log_set)(void (*)(int, const char *, void *), void *);
    *(void **) &log_set = symbol(ggml, "ggml_log_set");
    log_set(quietly, NULL);
    find_ops();
    fit_types(ggml);
    fit_buffers(ggml);
    const char * (*version)(void);
    *(void **) &version = dlsym(ggml, "ggml_version");
    return version ? version() : "of an unknown version";
}
