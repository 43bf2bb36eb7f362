// A gated feed-forward in the memory of a device, for many tokens and then for few, which run in the same plan: says for each
// whether the gated product is allocated over the activation, which a fused kernel still reads while it writes.
#include "model.h"

static struct ggml_tensor * weights(struct ggml_context * ctx, struct ggml_cgraph * graph) {
    static float data[9][16];
    static int next;
    struct ggml_tensor * tensor = leaf(graph, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 4));
    tensor->data = data[next++];
    return tensor;
}

static struct ggml_tensor * apply(struct ggml_context * ctx, struct ggml_cgraph * graph, int op, int64_t width, int64_t tokens, struct ggml_tensor * a, struct ggml_tensor * b) {
    return node(graph, mock_tensor(ctx, GGML_TYPE_F32, op, width, tokens, a, b));
}

int run(int argc, char ** argv) {
    (void) argc, (void) argv;
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(3));
    static const int64_t sizes[] = { 512, 1, 8 };
    for (int round = 0; round < 3; round++) {
        int64_t tokens = sizes[round];
        struct ggml_cgraph * graph = mock_graph(ctx, 16);
        struct ggml_tensor * x = leaf(graph, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, tokens));
        ggml_set_input(x);
        struct ggml_tensor * a = apply(ctx, graph, GGML_OP_FANCY, 64, tokens, x, NULL);
        struct ggml_tensor * gate = apply(ctx, graph, GGML_OP_MUL_MAT, 256, tokens, weights(ctx, graph), a);
        struct ggml_tensor * up = apply(ctx, graph, GGML_OP_MUL_MAT, 256, tokens, weights(ctx, graph), a);
        struct ggml_tensor * gated = apply(ctx, graph, GGML_OP_GLU, 256, tokens, gate, up);
        apply(ctx, graph, GGML_OP_MUL_MAT, 64, tokens, weights(ctx, graph), gated);
        EXPECT(allocates_well(galloc, graph));
        char * first = a->data, * second = gated->data;
        printf("%s", first < second + mock_nbytes(gated) && second < first + mock_nbytes(a) ? "overlap\n" : "apart\n");
    }
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
    return 0;
}
