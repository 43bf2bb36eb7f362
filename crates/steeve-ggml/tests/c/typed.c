// A graph of a type by its number: who allocates it says whether that is known.
#include "model.h"

int run(int argc, char ** argv) {
    EXPECT(argc == 2);
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = mock_graph(ctx, 4);
    leaf(graph, ggml_new_tensor_2d(ctx, TYPE, 64, 1));
    node(graph, mock_tensor(ctx, TYPE, GGML_OP_UNARY, 64, 1, graph->leafs[0], NULL));
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph) && graph->nodes[0]->data);
    EXPECT(mock_counts()->originals_made == (strcmp(argv[1], "original") == 0));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
    return 0;
}
