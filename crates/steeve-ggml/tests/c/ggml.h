// A ggml for tests: its structures in its layout, the functions that the drop-in calls, and buffer types that count what is
// made of them and fail on demand. Where ggml ends the process, so does this.
//
// With REAL_GGML the functions are those of a ggml that is loaded at run time, see real.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGML_MAX_SRC 10

// Numbers as in ggml where the drop-in knows them. ODD is a type that only this ggml knows.
enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_F16 = 1, GGML_TYPE_Q4_0 = 2, GGML_TYPE_I32 = 26, GGML_TYPE_ODD = 36, GGML_TYPE_COUNT = 40 };

// The order is this ggml's own: operations are known by their names. FANCY is one that nobody knows.
#ifndef REAL_GGML
enum ggml_op {
    GGML_OP_NONE, GGML_OP_DUP, GGML_OP_ADD, GGML_OP_MUL, GGML_OP_SCALE, GGML_OP_MUL_MAT, GGML_OP_CPY, GGML_OP_RESHAPE,
    GGML_OP_VIEW, GGML_OP_CLAMP, GGML_OP_UNARY, GGML_OP_GLU, GGML_OP_FANCY, GGML_OP_COUNT,
};
#endif

enum { GGML_TENSOR_FLAG_INPUT = 1, GGML_TENSOR_FLAG_OUTPUT = 2 };

struct ggml_tensor {
    int32_t type;
    struct ggml_backend_buffer * buffer;
    int64_t ne[4];
    size_t nb[4];
#if MOCK_LAYOUT == 1
    int32_t flags;
#endif
    int32_t op;
    int32_t op_params[16];
#if MOCK_LAYOUT != 1
    int32_t flags;
#endif
    struct ggml_tensor * src[GGML_MAX_SRC];
#if MOCK_LAYOUT == 2
    size_t view_offs;
    struct ggml_tensor * view_src;
#else
    struct ggml_tensor * view_src;
    size_t view_offs;
#endif
#if MOCK_LAYOUT == 3
    void * extra;
#endif
    void * data;
    char name[64];
#if MOCK_LAYOUT != 3
    void * extra;
#endif
    struct ggml_tensor * next; // of the context; ggml has padding here
};

struct ggml_cgraph {
    int size;
    int n_nodes;
    int n_leafs;
#if MOCK_LAYOUT == 4
    struct ggml_tensor ** leafs;
#endif
    struct ggml_tensor ** nodes;
    struct ggml_tensor ** grads;
    struct ggml_tensor ** grad_accs;
#if MOCK_LAYOUT != 4
    struct ggml_tensor ** leafs;
#endif
    uint64_t uid;
};

struct ggml_init_params {
    size_t mem_size;
    void * mem_buffer;
    bool no_alloc;
};

typedef struct ggml_backend_buffer_type * ggml_backend_buffer_type_t;
typedef struct ggml_backend_buffer * ggml_backend_buffer_t;

// Tests change these as they like.
struct ggml_backend_buffer_type {
#ifdef REAL_GGML
    // What ggml knows of a buffer type: its functions, in an order that changes from version to version, a device and a context.
    void * words[16];
#endif
    const char * name;
    size_t alignment;
    size_t max_size;
    size_t padding; // of each tensor
    int made;       // buffers of this type so far
    int buffers;    // those that are not freed
    size_t alive;   // bytes in them
    struct mock_device * device;
};

// What the buffers of some types may take together.
struct mock_device { size_t total, alive; };

typedef struct ggml_backend * ggml_backend_t;
typedef struct ggml_gallocr * ggml_gallocr_t;

#ifdef REAL_GGML
#include "real.h"
#else

size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft);
size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t buft);
size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor * tensor);
ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size);
const char * ggml_backend_buft_name(ggml_backend_buffer_type_t buft);
void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_alignment(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t buffer, const struct ggml_tensor * tensor);
void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer);
void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, int usage);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);
ggml_backend_buffer_t ggml_backend_multi_buffer_alloc_buffer(ggml_backend_buffer_t * buffers, size_t n_buffers);
ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend);
int ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, void * addr);
int ggml_backend_view_init(struct ggml_tensor * tensor);
const char * ggml_type_name(int type);
const char * ggml_op_name(int op);
const char * ggml_op_desc(const struct ggml_tensor * tensor);
struct ggml_context * ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context * ctx);
struct ggml_tensor * ggml_get_first_tensor(const struct ggml_context * ctx);
struct ggml_tensor * ggml_get_next_tensor(const struct ggml_context * ctx, struct ggml_tensor * tensor);
struct ggml_tensor * ggml_new_tensor_2d(struct ggml_context * ctx, int type, int64_t ne0, int64_t ne1);
struct ggml_tensor * ggml_view_1d(struct ggml_context * ctx, struct ggml_tensor * a, int64_t ne0, size_t offset);
struct ggml_tensor * ggml_add(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b);
void ggml_set_input(struct ggml_tensor * tensor);
void ggml_set_output(struct ggml_tensor * tensor);
struct ggml_tensor * ggml_set_name(struct ggml_tensor * tensor, const char * name);
struct ggml_cgraph * ggml_new_graph(struct ggml_context * ctx);
void ggml_build_forward_expand(struct ggml_cgraph * graph, struct ggml_tensor * tensor);

typedef void (*ggml_log_callback)(int level, const char * text, void * user_data);
void ggml_log_set(ggml_log_callback callback, void * user_data);
void ggml_log_internal(int level, const char * format, ...);

ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);
ggml_gallocr_t ggml_gallocr_new_n(ggml_backend_buffer_type_t * bufts, int n_bufs);
void ggml_gallocr_free(ggml_gallocr_t galloc);
bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph * graph);
bool ggml_gallocr_reserve_n(ggml_gallocr_t galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids);
void ggml_gallocr_reserve_n_size(ggml_gallocr_t galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids, size_t * sizes);
bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph * graph);
size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int buffer_id);

size_t ggml_backend_alloc_ctx_tensors_from_buft_size(struct ggml_context * ctx, ggml_backend_buffer_type_t buft);
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context * ctx, ggml_backend_buffer_type_t buft);
ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(void * device, void * ptr, size_t size, size_t max_tensor_size);

// What ggml does not have.

struct mock_counts {
    int buffers_made, buffers_alive, most_alive, contexts_alive, resets;
    int originals_made, originals_alive, original_reserves, original_allocs;
};

// Of this ggml alone; there may be two in one process.
struct mock_counts * mock_counts(void);

// The next so many allocations succeed, and the one behind fails; below 0, none fails.
void mock_fail_after(int allocations);

// One of four types that stand in this library: "CPU", "CPU", "GPU", "GPU"; aligned to 32, 64, 256, 16.
ggml_backend_buffer_type_t mock_type(int index);

// The sizes that ggml would see.
size_t mock_nbytes(const struct ggml_tensor * tensor);

// A tensor with sources, contiguous, and in no list.
struct ggml_tensor * mock_tensor(struct ggml_context * ctx, int type, int op, int64_t ne0, int64_t ne1, struct ggml_tensor * a, struct ggml_tensor * b);

// A graph with room for so many of each.
struct ggml_cgraph * mock_graph(struct ggml_context * ctx, int size);

// A handle of this ggml's own allocator, made behind the back of whoever is preloaded.
ggml_gallocr_t mock_original(void);
// Allocates a graph from inside of ggml, as its scheduler does: the size of the buffer, 0 if that fails.
size_t mock_schedule(struct ggml_cgraph * graph);

#endif
