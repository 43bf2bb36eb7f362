#include "ggml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASSERT(x) do { if (!(x)) { fprintf(stderr, "ggml.c:%d: assert(%s)\n", __LINE__, #x); abort(); } } while (0)

struct ggml_backend_buffer {
    ggml_backend_buffer_type_t buft;
    void * memory;
    size_t size;
    int usage;
    struct ggml_backend_buffer ** parts;
    size_t n_parts;
};

struct ggml_context {
    bool no_alloc;
    struct ggml_tensor * first;
    struct ggml_tensor * last;
    struct mock_owned { struct mock_owned * next; } * owned;
};

static struct mock_counts counts;
static int fail_after = -1;
static struct ggml_backend_buffer_type types[] = {
    { "CPU", 32, SIZE_MAX, 0, 0, 0, 0, NULL }, { "CPU", 64, SIZE_MAX, 0, 0, 0, 0, NULL },
    { "GPU", 256, SIZE_MAX, 0, 0, 0, 0, NULL }, { "GPU", 16, SIZE_MAX, 0, 0, 0, 0, NULL },
};

struct mock_counts * mock_counts(void) { return &counts; }
void mock_fail_after(int allocations) { fail_after = allocations; }
ggml_backend_buffer_type_t mock_type(int index) { return &types[index]; }

// buffer types

size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft) { ASSERT(buft); return buft->alignment; }
size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t buft) { ASSERT(buft); return buft->max_size; }
const char * ggml_backend_buft_name(ggml_backend_buffer_type_t buft) { ASSERT(buft); return buft->name; }
ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend) { (void) backend; return &types[0]; }

size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor * tensor) {
    ASSERT(buft);
    return mock_nbytes(tensor) + buft->padding;
}

ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    ASSERT(buft);
    if (fail_after == 0 || size > (size_t) 1 << 32 || size > buft->max_size) {
        return NULL;
    }
    if (buft->device && size > buft->device->total - buft->device->alive) {
        return NULL;
    }
    fail_after -= fail_after > 0;
    buft->made++;
    buft->buffers++;
    buft->alive += size;
    if (buft->device) buft->device->alive += size;
    struct ggml_backend_buffer * buffer = calloc(1, sizeof *buffer);
    buffer->buft = buft;
    buffer->size = size;
    buffer->memory = size ? aligned_alloc(buft->alignment, (size + buft->alignment - 1) / buft->alignment * buft->alignment) : NULL;
    counts.buffers_made++;
    counts.buffers_alive++;
    if (counts.buffers_alive > counts.most_alive) counts.most_alive = counts.buffers_alive;
    return buffer;
}

// buffers

void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) { ASSERT(buffer); return buffer->memory; }
size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer) { ASSERT(buffer); return buffer->size; }
size_t ggml_backend_buffer_get_alignment(ggml_backend_buffer_t buffer) { ASSERT(buffer); return buffer->buft->alignment; }
size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t buffer, const struct ggml_tensor * tensor) {
    ASSERT(buffer);
    return ggml_backend_buft_get_alloc_size(buffer->buft, tensor);
}
void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer) { ASSERT(buffer); counts.resets++; }
void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, int usage) { ASSERT(buffer && usage == 2); buffer->usage = usage; }

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    if (!buffer) {
        return;
    }
    for (size_t i = 0; i < buffer->n_parts; i++) {
        ggml_backend_buffer_free(buffer->parts[i]);
    }
    // Who still reads or writes there is noticed.
    if (buffer->memory) {
        memset(buffer->memory, 0xDD, buffer->size);
    }
    if (!buffer->n_parts) {
        buffer->buft->buffers--;
        buffer->buft->alive -= buffer->size;
        if (buffer->buft->device) buffer->buft->device->alive -= buffer->size;
    }
    free(buffer->parts);
    free(buffer->memory);
    free(buffer);
    counts.buffers_alive--;
}

ggml_backend_buffer_t ggml_backend_multi_buffer_alloc_buffer(ggml_backend_buffer_t * buffers, size_t n_buffers) {
    struct ggml_backend_buffer * buffer = calloc(1, sizeof *buffer);
    buffer->buft = buffers[0]->buft;
    buffer->parts = malloc(n_buffers * sizeof *buffers);
    memcpy(buffer->parts, buffers, n_buffers * sizeof *buffers);
    buffer->n_parts = n_buffers;
    for (size_t i = 0; i < n_buffers; i++) {
        buffer->size += buffers[i]->size;
    }
    counts.buffers_made++;
    counts.buffers_alive++;
    return buffer;
}

// tensors

int ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, void * addr) {
    ASSERT(tensor);
    ASSERT(tensor->buffer == NULL);
    ASSERT(tensor->data == NULL);
    ASSERT(tensor->view_src == NULL);
    ASSERT((char *) addr >= (char *) buffer->memory);
    ASSERT((uintptr_t) addr % buffer->buft->alignment == 0);
    ASSERT((char *) addr + ggml_backend_buffer_get_alloc_size(buffer, tensor) <= (char *) buffer->memory + buffer->size);
    tensor->buffer = buffer;
    tensor->data = addr;
    return 0;
}

int ggml_backend_view_init(struct ggml_tensor * tensor) {
    ASSERT(tensor);
    ASSERT(tensor->buffer == NULL);
    ASSERT(tensor->view_src != NULL);
    ASSERT(tensor->view_src->buffer != NULL);
    ASSERT(tensor->view_src->data != NULL);
    tensor->buffer = tensor->view_src->buffer;
    tensor->data = (char *) tensor->view_src->data + tensor->view_offs;
    return 0;
}

// Beyond the tables there is garbage, as there may be in ggml.
#define GARBAGE (const char *) (uintptr_t) 0xDEADBEEFu

static const struct { const char * known[GGML_TYPE_COUNT]; const char * beyond[4]; } type_names = {
    { [GGML_TYPE_F32] = "f32", [GGML_TYPE_F16] = "f16", [GGML_TYPE_Q4_0] = "q4_0", [GGML_TYPE_I32] = "i32",
      [GGML_TYPE_ODD] = "odd",
#ifdef MOCK_OTHER_TYPES
      [28] = "i64",
#else
      [28] = "f64",
#endif
    },
    { GARBAGE, GARBAGE, GARBAGE, GARBAGE },
};
static const struct { const char * known[GGML_OP_COUNT]; const char * beyond[4]; } op_names = {
    { "NONE", "DUP", "ADD", "MUL", "SCALE", "MUL_MAT", "CPY", "RESHAPE", "VIEW", "CLAMP", "UNARY", "GLU", "FANCY" },
    { GARBAGE, GARBAGE, GARBAGE, GARBAGE },
};
static const struct { const char * known[2]; const char * beyond[98]; } kind_names = {
    { "NEG", "SILU" }, { GARBAGE },
};

#ifndef MOCK_MISSING
const char * ggml_type_name(int type) { return type_names.known[type]; }
#endif
const char * ggml_op_name(int op) { return op_names.known[op]; }

const char * ggml_op_desc(const struct ggml_tensor * tensor) {
    if (tensor->op == GGML_OP_UNARY || tensor->op == GGML_OP_GLU) {
        return kind_names.known[tensor->op_params[0]];
    }
    return ggml_op_name(tensor->op);
}

static size_t type_size(int type) { return type == GGML_TYPE_F16 ? 2 : type == GGML_TYPE_Q4_0 ? 18 : type == 28 ? 8 : 4; }

size_t mock_nbytes(const struct ggml_tensor * tensor) {
    ASSERT(tensor->type >= 0 && tensor->type < GGML_TYPE_COUNT && type_names.known[tensor->type]);
    for (int i = 0; i < 4; i++) {
        if (tensor->ne[i] <= 0) {
            return 0;
        }
    }
    size_t bytes = type_size(tensor->type);
    int first = 0;
    if (tensor->type == GGML_TYPE_Q4_0) {
        bytes = tensor->ne[0] * tensor->nb[0] / 32;
        first = 1;
    }
    for (int i = first; i < 4; i++) {
        bytes += (size_t) (tensor->ne[i] - 1) * tensor->nb[i];
    }
    return bytes;
}

// contexts and graphs

static void * owned(struct ggml_context * ctx, size_t size) {
    struct mock_owned * memory = calloc(1, 64 + size);
    memory->next = ctx->owned;
    ctx->owned = memory;
    return (char *) memory + 64;
}

struct ggml_context * ggml_init(struct ggml_init_params params) {
    struct ggml_context * ctx = calloc(1, sizeof *ctx);
    ctx->no_alloc = params.no_alloc;
    counts.contexts_alive++;
    return ctx;
}

void ggml_free(struct ggml_context * ctx) {
    while (ctx->owned) {
        struct mock_owned * next = ctx->owned->next;
        free(ctx->owned);
        ctx->owned = next;
    }
    free(ctx);
    counts.contexts_alive--;
}

struct ggml_tensor * ggml_get_first_tensor(const struct ggml_context * ctx) { return ctx->first; }

struct ggml_tensor * ggml_get_next_tensor(const struct ggml_context * ctx, struct ggml_tensor * tensor) {
    (void) ctx;
    return tensor->next;
}

static struct ggml_tensor * new_tensor(struct ggml_context * ctx, int type, int op, int64_t ne0, int64_t ne1) {
    struct ggml_tensor * tensor = owned(ctx, sizeof *tensor);
    tensor->type = type;
    tensor->op = op;
    int64_t ne[4] = { ne0, ne1, 1, 1 };
    memcpy(tensor->ne, ne, sizeof ne);
    tensor->nb[0] = type_size(type);
    tensor->nb[1] = tensor->nb[0] * (type == GGML_TYPE_Q4_0 ? ne0 / 32 : ne0);
    tensor->nb[2] = tensor->nb[1] * ne1;
    tensor->nb[3] = tensor->nb[2];
    *(ctx->last ? &ctx->last->next : &ctx->first) = tensor;
    ctx->last = tensor;
    return tensor;
}

struct ggml_tensor * mock_tensor(struct ggml_context * ctx, int type, int op, int64_t ne0, int64_t ne1, struct ggml_tensor * a, struct ggml_tensor * b) {
    struct ggml_tensor * tensor = new_tensor(ctx, type, op, ne0, ne1);
    tensor->src[0] = a;
    tensor->src[1] = b;
    if (!ctx->no_alloc) {
        tensor->data = owned(ctx, mock_nbytes(tensor));
    }
    return tensor;
}

struct ggml_tensor * ggml_new_tensor_2d(struct ggml_context * ctx, int type, int64_t ne0, int64_t ne1) {
    return mock_tensor(ctx, type, GGML_OP_NONE, ne0, ne1, NULL, NULL);
}

struct ggml_tensor * ggml_view_1d(struct ggml_context * ctx, struct ggml_tensor * a, int64_t ne0, size_t offset) {
    struct ggml_tensor * tensor = new_tensor(ctx, a->type, GGML_OP_VIEW, ne0, 1);
    tensor->src[0] = a;
    tensor->view_src = a->view_src ? a->view_src : a;
    tensor->view_offs = a->view_offs + offset;
    tensor->op_params[0] = (int32_t) offset;
    tensor->data = tensor->view_src->data ? (char *) tensor->view_src->data + tensor->view_offs : NULL;
    return tensor;
}

struct ggml_tensor * ggml_add(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b) {
    return mock_tensor(ctx, a->type, GGML_OP_ADD, a->ne[0], a->ne[1], a, b);
}

void ggml_set_input(struct ggml_tensor * tensor) { tensor->flags |= GGML_TENSOR_FLAG_INPUT; }
void ggml_set_output(struct ggml_tensor * tensor) { tensor->flags |= GGML_TENSOR_FLAG_OUTPUT; }

struct ggml_tensor * ggml_set_name(struct ggml_tensor * tensor, const char * name) {
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    return tensor;
}

struct ggml_cgraph * mock_graph(struct ggml_context * ctx, int size) {
    struct ggml_cgraph * graph = owned(ctx, sizeof *graph);
    graph->size = size;
    graph->nodes = owned(ctx, size * sizeof *graph->nodes);
    graph->leafs = owned(ctx, size * sizeof *graph->leafs);
    return graph;
}

struct ggml_cgraph * ggml_new_graph(struct ggml_context * ctx) { return mock_graph(ctx, 2048); }

void ggml_build_forward_expand(struct ggml_cgraph * graph, struct ggml_tensor * tensor) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i] == tensor) return;
    }
    for (int i = 0; i < graph->n_leafs; i++) {
        if (graph->leafs[i] == tensor) return;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (tensor->src[i]) {
            ggml_build_forward_expand(graph, tensor->src[i]);
        }
    }
    ASSERT(graph->n_nodes < graph->size && graph->n_leafs < graph->size);
    if (tensor->op == GGML_OP_NONE) {
        graph->leafs[graph->n_leafs++] = tensor;
    } else {
        graph->nodes[graph->n_nodes++] = tensor;
    }
}

// the log

#ifndef MOCK_NO_LOG
static void to_stderr(int level, const char * text, void * user_data) {
    (void) level, (void) user_data;
    fputs(text, stderr);
}

static ggml_log_callback log_callback = to_stderr;
static void * log_data;

void ggml_log_set(ggml_log_callback callback, void * user_data) {
    log_callback = callback;
    log_data = user_data;
}

void ggml_log_internal(int level, const char * format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_callback(level, text, log_data);
}
#endif

// newer ggmls

// The environment says what version it is, and what device there is besides the CPU.
#ifndef MOCK_OLD
static const char * variable(const char * name, const char * otherwise) { return getenv(name) ? getenv(name) : otherwise; }
static bool has(const char * name, const char * part) { return strstr(name, part) != NULL; }

const char * ggml_version(void);
const char * ggml_version(void) { return variable("MOCK_VERSION", "0.0.0-mock"); }
bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft);
bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft) { return has(buft->name, "CPU") || getenv("MOCK_HOST"); }
void * ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft);
void * ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft) { return has(buft->name, "CPU") ? NULL : buft; }
const char * ggml_backend_dev_name(void * device);
const char * ggml_backend_dev_name(void * device) { ASSERT(device); return "GPU\"7"; }
ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer);
ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer) { ASSERT(buffer); return buffer->buft; }
int ggml_backend_dev_type(void * device);
int ggml_backend_dev_type(void * device) { ASSERT(device); return atoi(variable("MOCK_DEVICE", "1")); }
void * ggml_backend_dev_backend_reg(void * device);
void * ggml_backend_dev_backend_reg(void * device) { ASSERT(device); return getenv("MOCK_REGISTRY") ? device : NULL; }
const char * ggml_backend_reg_name(void * registry);
const char * ggml_backend_reg_name(void * registry) { ASSERT(registry); return getenv("MOCK_REGISTRY"); }
#endif

#if !defined MOCK_OLD && !defined MOCK_WHOLE
bool ggml_op_can_inplace(int op);
bool ggml_op_can_inplace(int op) {
    return op == GGML_OP_ADD || op == GGML_OP_MUL || op == GGML_OP_SCALE || op == GGML_OP_UNARY || op == GGML_OP_CLAMP;
}
#endif
