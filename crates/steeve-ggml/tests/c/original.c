// A graph allocator as ggml might have it: every tensor has bytes of its own. It counts what it is asked, and its functions
// call each other by their public names, so that a preloaded library comes in between.
#include "ggml.h"

#include <stdlib.h>
#include <string.h>

struct ggml_gallocr {
    ggml_backend_buffer_type_t * bufts; // first, as in ggml
    ggml_backend_buffer_t * buffers;
    size_t * used;
    int n_buffers, n_nodes, n_leafs;
    int * node_ids;
};

#define EXPORT __attribute__((noinline, visibility("default")))

static struct ggml_gallocr * new_handle(ggml_backend_buffer_type_t * bufts, int n_bufs) {
    struct ggml_gallocr * galloc = calloc(1, sizeof *galloc);
    galloc->bufts = calloc(n_bufs, sizeof *bufts);
    memcpy(galloc->bufts, bufts, n_bufs * sizeof *bufts);
    galloc->buffers = calloc(n_bufs, sizeof *galloc->buffers);
    galloc->used = calloc(n_bufs, sizeof *galloc->used);
    galloc->n_buffers = n_bufs;
    galloc->n_nodes = -1;
    mock_counts()->originals_made++;
    mock_counts()->originals_alive++;
    return galloc;
}

EXPORT ggml_gallocr_t ggml_gallocr_new_n(ggml_backend_buffer_type_t * bufts, int n_bufs) { return new_handle(bufts, n_bufs); }
EXPORT ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft) { return ggml_gallocr_new_n(&buft, 1); }

#ifdef MOCK_PARTLY_BOUND
// As link-time optimisation may leave it: a part of the calls never leaves the object.
extern __typeof__(ggml_gallocr_reserve_n) bound_reserve_n __attribute__((alias("ggml_gallocr_reserve_n"), visibility("hidden")));
#else
#define bound_reserve_n ggml_gallocr_reserve_n
#endif

// As ggml's scheduler calls its allocator, from the same object. The buffer's size.
EXPORT size_t mock_schedule(struct ggml_cgraph * graph) {
    ggml_backend_buffer_type_t type = mock_type(0);
    ggml_gallocr_t galloc = ggml_gallocr_new_n(&type, 1);
    size_t asked = 0, size = 0;
    ggml_gallocr_reserve_n_size(galloc, graph, NULL, NULL, &asked);
    if (bound_reserve_n(galloc, graph, NULL, NULL) && ggml_gallocr_alloc_graph(galloc, graph)) {
        size = ggml_gallocr_get_buffer_size(galloc, 0);
    }
    ggml_gallocr_free(galloc);
    return size == asked ? size : 0;
}

EXPORT ggml_gallocr_t mock_original(void) {
    ggml_backend_buffer_type_t type = mock_type(0);
    return new_handle(&type, 1);
}

EXPORT void ggml_gallocr_free(ggml_gallocr_t galloc) {
    if (!galloc) {
        return;
    }
    for (int i = 0; i < galloc->n_buffers; i++) {
        ggml_backend_buffer_free(galloc->buffers[i]);
    }
    free(galloc->bufts);
    free(galloc->buffers);
    free(galloc->used);
    free(galloc->node_ids);
    free(galloc);
    mock_counts()->originals_alive--;
}

static size_t take(struct ggml_gallocr * galloc, int id, const struct ggml_tensor * tensor) {
    size_t alignment = ggml_backend_buft_get_alignment(galloc->bufts[id]);
    size_t size = ggml_backend_buft_get_alloc_size(galloc->bufts[id], tensor);
    size_t offset = galloc->used[id];
    galloc->used[id] += (size + alignment - 1) / alignment * alignment;
    return offset;
}

static void place(struct ggml_gallocr * galloc, int id, struct ggml_tensor * tensor) {
    if (tensor->view_src) {
        if (!tensor->buffer && tensor->view_src->buffer) {
            ggml_backend_view_init(tensor);
        }
    } else if (!tensor->data && !tensor->buffer) {
        char * base = ggml_backend_buffer_get_base(galloc->buffers[id]);
        ggml_backend_tensor_alloc(galloc->buffers[id], tensor, base + take(galloc, id, tensor));
    }
}

static void measure(struct ggml_gallocr * galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids) {
    memset(galloc->used, 0, galloc->n_buffers * sizeof *galloc->used);
    for (int i = 0; i < graph->n_leafs; i++) {
        take(galloc, leaf_ids ? leaf_ids[i] : 0, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        int id = node_ids ? node_ids[i] : 0;
        // A tensor that is met twice counts twice: this is no good allocator.
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (graph->nodes[i]->src[j]) take(galloc, id, graph->nodes[i]->src[j]);
        }
        take(galloc, id, graph->nodes[i]);
    }
}

EXPORT bool ggml_gallocr_reserve_n(ggml_gallocr_t galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids) {
    mock_counts()->original_reserves++;
    measure(galloc, graph, node_ids, leaf_ids);
    for (int i = 0; i < galloc->n_buffers; i++) {
        if (galloc->buffers[i] && ggml_backend_buffer_get_size(galloc->buffers[i]) >= galloc->used[i]) {
            continue;
        }
        ggml_backend_buffer_free(galloc->buffers[i]);
        galloc->buffers[i] = ggml_backend_buft_alloc_buffer(galloc->bufts[i], galloc->used[i]);
        if (!galloc->buffers[i]) {
            galloc->n_nodes = -1;
            return false;
        }
        ggml_backend_buffer_set_usage(galloc->buffers[i], 2);
    }
    galloc->n_nodes = graph->n_nodes;
    galloc->n_leafs = graph->n_leafs;
    galloc->node_ids = realloc(galloc->node_ids, (graph->n_nodes + 1) * sizeof(int));
    for (int i = 0; i < graph->n_nodes; i++) {
        galloc->node_ids[i] = node_ids ? node_ids[i] : 0;
    }
    return true;
}

EXPORT bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph * graph) {
    return bound_reserve_n(galloc, graph, NULL, NULL);
}

EXPORT void ggml_gallocr_reserve_n_size(ggml_gallocr_t galloc, struct ggml_cgraph * graph, const int * node_ids, const int * leaf_ids, size_t * sizes) {
    mock_counts()->original_reserves++;
    measure(galloc, graph, node_ids, leaf_ids);
    memcpy(sizes, galloc->used, galloc->n_buffers * sizeof *sizes);
}

EXPORT bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph * graph) {
    mock_counts()->original_allocs++;
    if (galloc->n_buffers > 1 && (galloc->n_nodes != graph->n_nodes || galloc->n_leafs != graph->n_leafs)) {
        return false;
    }
    if (galloc->n_buffers == 1 && !ggml_gallocr_reserve(galloc, graph)) {
        return false;
    }
    memset(galloc->used, 0, galloc->n_buffers * sizeof *galloc->used);
    for (int i = 0; i < graph->n_leafs; i++) {
        place(galloc, 0, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (graph->nodes[i]->src[j]) place(galloc, galloc->node_ids[i], graph->nodes[i]->src[j]);
        }
        place(galloc, galloc->node_ids[i], graph->nodes[i]);
    }
    return true;
}

EXPORT size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int buffer_id) {
    return galloc->buffers[buffer_id] ? ggml_backend_buffer_get_size(galloc->buffers[buffer_id]) : 0;
}

// The tensors of a context in a buffer of their own.

static size_t size_of_context(struct ggml_context * ctx, ggml_backend_buffer_type_t buft) {
    size_t size = 0;
    for (struct ggml_tensor * it = ggml_get_first_tensor(ctx); it; it = ggml_get_next_tensor(ctx, it)) {
        size += ggml_backend_buft_get_alloc_size(buft, it);
    }
    return size;
}

EXPORT size_t ggml_backend_alloc_ctx_tensors_from_buft_size(struct ggml_context * ctx, ggml_backend_buffer_type_t buft) {
    return size_of_context(ctx, buft);
}

EXPORT ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context * ctx, ggml_backend_buffer_type_t buft) {
    return ggml_backend_buft_alloc_buffer(buft, size_of_context(ctx, buft));
}

EXPORT ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(void * device, void * ptr, size_t size, size_t max_tensor_size) {
    (void) ptr, (void) max_tensor_size;
    return ggml_backend_buft_alloc_buffer(device, size);
}
