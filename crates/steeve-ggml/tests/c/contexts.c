// Makes and frees buffers beside those of graphs, as programs do for weights and caches.
#include "model.h"

static struct ggml_context * named(const char * name) {
    struct ggml_context * ctx = context();
    ggml_set_name(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 16, 1), "first");
    ggml_set_name(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 16, 1), name);
    return ctx;
}

int run(int argc, char ** argv) {
    (void) argc, (void) argv;
    struct ggml_context * weights = named("blk.0.attn_q.weight");
    struct ggml_context * caches = named("cache_k_l0");
    struct ggml_context * other = named("second");
    // What is made only to see whether it can be made.
    for (int i = 0; i < 10; i++) {
        ggml_backend_buffer_free(ggml_backend_buft_alloc_buffer(mock_type(0), 0));
    }
    ggml_backend_buffer_free(NULL);
    EXPECT(ggml_backend_alloc_ctx_tensors_from_buft_size(weights, mock_type(0)) == 128);
    ggml_backend_buffer_t buffers[4] = {
        ggml_backend_alloc_ctx_tensors_from_buft(weights, mock_type(2)),
        ggml_backend_alloc_ctx_tensors_from_buft(caches, mock_type(0)),
        ggml_backend_alloc_ctx_tensors_from_buft(other, mock_type(0)),
        ggml_backend_dev_buffer_from_host_ptr(mock_type(2), buffers, 4096, 64),
    };
    mock_fail_after(0);
    EXPECT(!ggml_backend_alloc_ctx_tensors_from_buft(caches, mock_type(2)));
    mock_fail_after(-1);
    // Two types of which one is listed twice.
    ggml_backend_buffer_type_t types[3] = { mock_type(2), mock_type(0), mock_type(2) };
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 3);
    struct ggml_context * ctx = context();
    struct ggml_cgraph * graph = gapped(ctx);
    size_t sizes[3] = { 0 };
    ggml_gallocr_reserve_n_size(galloc, graph, NULL, NULL, sizes);
    EXPECT(sizes[0] > 0);
    for (int round = 0; round < 3; round++) {
        EXPECT(ggml_gallocr_reserve(galloc, graph));
    }
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == sizes[0]);
    ggml_gallocr_free(galloc);
    for (int i = 0; i < 4; i++) {
        ggml_backend_buffer_free(buffers[i]);
    }
    EXPECT(mock_counts()->buffers_alive == 0);
    ggml_free(ctx);
    ggml_free(weights);
    ggml_free(caches);
    ggml_free(other);
    return 0;
}
