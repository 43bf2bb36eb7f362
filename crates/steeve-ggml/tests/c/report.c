// Allocates graphs and says how large the buffer is after each. With an argument, the buffer type is in no library, or
// that of the device.
#include "model.h"

int run(int argc, char ** argv) {
    struct ggml_context * ctx = context();
    struct ggml_backend_buffer_type * elsewhere = malloc(sizeof *elsewhere);
    *elsewhere = *mock_type(0);
    ggml_gallocr_t galloc = ggml_gallocr_new(argc < 2 ? mock_type(0) : strcmp(argv[1], "device") ? elsewhere : mock_type(3));
    for (int round = 0; round < 3; round++) {
        struct ggml_cgraph * graph = gapped(ctx);
        if (round == 2) {
            struct ggml_tensor * gated = op(ctx, graph, GGML_OP_GLU, 8, graph->nodes[3], graph->nodes[3]);
            gated->op_params[0] = 1;
            op(ctx, graph, GGML_OP_FANCY, 8, ggml_set_name(gated, "gated"), NULL);
        }
        EXPECT(allocates_well(galloc, graph));
        printf("%zu\n", ggml_gallocr_get_buffer_size(galloc, 0));
    }
    ggml_gallocr_free(galloc);
    printf("%d buffers, %d originals\n", mock_counts()->buffers_made, mock_counts()->originals_made);
    EXPECT(mock_counts()->buffers_alive == 0 && mock_counts()->originals_alive == 0);
    ggml_free(ctx);
    free(elsewhere);
    return 0;
}
