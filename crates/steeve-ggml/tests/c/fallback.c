// When ours gives up, ggml's own allocator takes over, for good. Argument: what is expected of this ggml.
#include "model.h"

// `own`: it has an allocator of its own.
static void unknown_types(bool own) {
    struct mock_counts * counts = mock_counts(), before = *counts;
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(allocates_well(galloc, gapped(ctx)));
    EXPECT(counts->originals_made == before.originals_made && counts->buffers_alive == before.buffers_alive + 1);
    struct ggml_cgraph * odd = gapped(ctx);
    odd->nodes[1]->type = GGML_TYPE_ODD;
    EXPECT(ggml_gallocr_alloc_graph(galloc, odd) == own);
    EXPECT(counts->originals_made == before.originals_made + own && counts->original_allocs == before.original_allocs + own);
    // In between its functions call each other by their public names.
    EXPECT(counts->original_reserves == before.original_reserves + own);
    EXPECT(!own || (odd->nodes[1]->data && counts->buffers_alive == before.buffers_alive + 1));
    // It stays so, with ggml's layout if there is no more than that.
    struct ggml_cgraph * graph = gapped(ctx);
    EXPECT(allocates_well(galloc, graph));
    EXPECT(counts->originals_made == before.originals_made + own && counts->original_allocs == before.original_allocs + 2 * own);
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == (own ? 1824 : 896));
    size_t size = 0;
    ggml_gallocr_reserve_n_size(galloc, gapped(ctx), NULL, NULL, &size);
    EXPECT(size == (own ? 1824 : 896));
    ggml_gallocr_free(galloc);
    EXPECT(counts->originals_alive == 0 && counts->buffers_alive == before.buffers_alive);
    // Another handle starts anew.
    galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(allocates_well(galloc, gapped(ctx)) && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    EXPECT(counts->originals_made == before.originals_made + own);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Whoever only asks for sizes still uses what he has.
static void sizes_of_unknown_types(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = gapped(ctx), * odd = gapped(ctx);
    odd->nodes[1]->type = GGML_TYPE_ODD;
    size_t size = 0;
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
    ggml_gallocr_reserve_n_size(galloc, odd, NULL, NULL, &size);
    EXPECT(size == 1824 && runs_well(graph) && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    EXPECT(ggml_gallocr_alloc_graph(galloc, odd) && ggml_gallocr_get_buffer_size(galloc, 0) == 1824);
    EXPECT(mock_counts()->buffers_alive == 1);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Nothing but ggml's own allocator, from the beginning.
static void only_originals(void) {
    struct mock_counts * counts = mock_counts();
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(galloc && counts->originals_made == 1 && ggml_gallocr_get_buffer_size(galloc, 0) == 0);
    EXPECT(ggml_gallocr_reserve(galloc, gapped(ctx)));
    EXPECT(allocates_well(galloc, gapped(ctx)) && ggml_gallocr_get_buffer_size(galloc, 0) == 1824);
    EXPECT(counts->originals_made == 1 && counts->original_reserves == 2 && counts->original_allocs == 1);
    ggml_gallocr_free(galloc);
    EXPECT(counts->originals_alive == 0 && counts->buffers_alive == 0);
    ggml_free(ctx);
}

// Nobody can help.
static void nobody(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = gapped(ctx);
    EXPECT(!ggml_gallocr_reserve(galloc, graph) && !ggml_gallocr_alloc_graph(galloc, graph));
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 0 && !graph->nodes[0]->data);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// As ggml's own code would, were part of its calls bound inside: a handle that the drop-in never saw.
static void strange_handles(void) {
#ifndef MOCK_OLD
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = mock_original();
    EXPECT(ggml_gallocr_reserve(galloc, gapped(ctx)));
    EXPECT(allocates_well(galloc, gapped(ctx)) && ggml_gallocr_get_buffer_size(galloc, 0) == 1824);
    ggml_gallocr_free(galloc);
    EXPECT(mock_counts()->originals_alive == 0);
    ggml_free(ctx);
#endif
}

// Somebody in ggml's own object calls its allocator.
static void calls_inside(size_t expected) {
#ifndef MOCK_OLD
    struct ggml_context * ctx = context();
    EXPECT(mock_schedule(gapped(ctx)) == expected);
    EXPECT(mock_counts()->originals_alive == 0 && mock_counts()->buffers_alive == 0);
    ggml_free(ctx);
#else
    (void) expected;
#endif
}

int run(int argc, char ** argv) {
    EXPECT(argc == 2);
    const char * what = argv[1];
    if (strcmp(what, "both") == 0) unknown_types(true), sizes_of_unknown_types(), strange_handles(), calls_inside(640);
    if (strcmp(what, "ours") == 0) unknown_types(false);
    if (strcmp(what, "theirs") == 0) only_originals(), strange_handles(), calls_inside(1824);
    if (strcmp(what, "none") == 0) nobody();
    return 0;
}
