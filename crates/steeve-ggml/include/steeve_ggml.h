// ggml's graph allocator, planned by steeve. Made by cbindgen: see cbindgen.toml.
//
// The functions and types are those of ggml-alloc.h, so the two headers can be included together. With STEEVE_GGML_WHOLE
// defined there is also what the library has with its feature `whole`; that is instead of ggml-alloc.h.

#ifndef STEEVE_GGML_H
#define STEEVE_GGML_H

#include <stdbool.h>
#include <stddef.h>

struct ggml_backend;
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;
struct ggml_cgraph;
struct ggml_context;
struct ggml_gallocr;
struct ggml_tensor;

typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_gallocr *ggml_gallocr_t;

#if defined(STEEVE_GGML_WHOLE)
// Allocates tensors one behind another in a buffer that it does not own.
struct ggml_tallocr {
  ggml_backend_buffer_t buffer;
  void *base;
  size_t alignment;
  size_t offset;
};
#endif

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes an allocator for one buffer type. Null if ggml is not found.
struct ggml_gallocr *ggml_gallocr_new(ggml_backend_buffer_type_t buft);

// Makes an allocator for several buffer types. Null if ggml is not found.
struct ggml_gallocr *ggml_gallocr_new_n(ggml_backend_buffer_type_t *bufts, int n_bufs);

// Frees a handle and its buffers. Null is fine.
void ggml_gallocr_free(struct ggml_gallocr *galloc);

// Plans a graph and makes the buffers large enough for it. False if the device has no such memory.
bool ggml_gallocr_reserve(struct ggml_gallocr *galloc, struct ggml_cgraph *graph);

// Plans a graph with a buffer number for each node and leaf (null: all in the first), and makes the buffers large enough.
bool ggml_gallocr_reserve_n(struct ggml_gallocr *galloc,
                            struct ggml_cgraph *graph,
                            const int *node_buffer_ids,
                            const int *leaf_buffer_ids);

// Writes what a reserve would take for each buffer to `sizes`, and takes nothing.
void ggml_gallocr_reserve_n_size(struct ggml_gallocr *galloc,
                                 struct ggml_cgraph *graph,
                                 const int *node_buffer_ids,
                                 const int *leaf_buffer_ids,
                                 size_t *sizes);

// Gives every tensor of a graph its address. False if that fails; with several buffers it must have been reserved.
bool ggml_gallocr_alloc_graph(struct ggml_gallocr *galloc,
                              struct ggml_cgraph *graph);

// Returns how many bytes are allocated for a buffer; 0 for one that shares another's memory.
size_t ggml_gallocr_get_buffer_size(struct ggml_gallocr *galloc, int buffer_id);

#if defined(STEEVE_GGML_WHOLE)
// Makes a tensor allocator at the first aligned byte of a buffer.
struct ggml_tallocr ggml_tallocr_new(ggml_backend_buffer_t buffer);
#endif

#if defined(STEEVE_GGML_WHOLE)
// Gives a tensor the next bytes of the buffer. Where there are too few, the status says so and nothing changes.
int ggml_tallocr_alloc(struct ggml_tallocr *talloc,
                       struct ggml_tensor *tensor);
#endif

#if defined(STEEVE_GGML_WHOLE)
// Returns how many bytes the tensors of a context take that have no memory yet.
size_t ggml_backend_alloc_ctx_tensors_from_buft_size(struct ggml_context * ctx,
                                                     ggml_backend_buffer_type_t buft);
#endif

#if defined(STEEVE_GGML_WHOLE)
// Gives all tensors of a context memory that have none. Null if there are none, or if that fails: then nothing changes.
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context * ctx,
                                                               ggml_backend_buffer_type_t buft);
#endif

#if defined(STEEVE_GGML_WHOLE)
// Allocates the tensors of a context that have no memory, in the default memory of a backend.
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(struct ggml_context * ctx,
                                                     ggml_backend_t backend);
#endif

#if defined(STEEVE_GGML_WHOLE)
// Returns whether the planner lets an operation run in place of one of its sources.
bool ggml_op_can_inplace(int op);
#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEEVE_GGML_H */
