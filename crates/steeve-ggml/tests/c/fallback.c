// A graph that ours can't plan is left to ggml's own allocator, and the next one comes back. Argument: what is expected of
// this ggml.
#include "model.h"

// A graph with a type that only ggml knows.
static struct ggml_cgraph * odd(struct ggml_context * ctx) {
    struct ggml_cgraph * graph = gapped(ctx);
    graph->nodes[1]->type = GGML_TYPE_ODD;
    return graph;
}

// A graph of another length, for which ggml's own must reserve anew.
static struct ggml_cgraph * longer(struct ggml_context * ctx) {
    struct ggml_cgraph * graph = gapped(ctx);
    ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 8, graph->nodes[3], NULL));
    return graph;
}

static bool alloc(ggml_gallocr_t galloc, struct ggml_cgraph * graph, bool reserved) {
    return (!reserved || ggml_gallocr_reserve(galloc, graph)) && ggml_gallocr_alloc_graph(galloc, graph);
}

// One buffer type. `own`: ggml has an allocator of its own; `reserved`: each graph is reserved first.
static void only_that_graph(bool own, bool reserved) {
    struct mock_counts * counts = mock_counts(), before = *counts;
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    counts->most_alive = 0;
    EXPECT(alloc(galloc, gapped(ctx), reserved) && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    EXPECT(counts->originals_made == before.originals_made && counts->buffers_alive == before.buffers_alive + 1);
    for (int round = 1; round <= 3; round++) {
        struct ggml_cgraph * first = odd(ctx), * second = odd(ctx);
        EXPECT(alloc(galloc, first, reserved) == own && alloc(galloc, second, reserved) == own);
        EXPECT(!own || (first->nodes[1]->data && second->nodes[3]->data));
        // One handle of ggml's own, as long as such graphs come, and nothing of ours beside it.
        EXPECT(counts->originals_made == before.originals_made + round * own && counts->originals_alive == own);
        EXPECT(counts->buffers_alive == before.buffers_alive + 1);
        EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == (own ? 1824 : 640));
        // Ours plans again, and nothing of ggml's own is left.
        for (int again = 0; again < 3; again++) {
            struct ggml_cgraph * graph = again == 1 ? longer(ctx) : gapped(ctx);
            int allocs = counts->original_allocs;
            EXPECT(alloc(galloc, graph, reserved) && runs_well(graph));
            EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 640 && counts->original_allocs == allocs);
            EXPECT(counts->originals_alive == 0 && counts->buffers_alive == before.buffers_alive + 1);
        }
    }
    // Old and new never were there together.
    EXPECT(counts->most_alive == before.buffers_alive + 1);
    EXPECT(alloc(galloc, odd(ctx), reserved) == own);
    ggml_gallocr_free(galloc);
    EXPECT(counts->originals_alive == 0 && counts->buffers_alive == before.buffers_alive);
    ggml_free(ctx);
}

// Several buffer types: nothing changes but by a reserve.
static void only_that_graph_of_several_buffers(bool own) {
    struct mock_counts * counts = mock_counts();
    struct ggml_context * ctx = context();
    ggml_backend_buffer_type_t types[2] = { mock_type(0), mock_type(2) };
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 2);
    int nodes[8] = { 0, 0, 1, 1, 0, 0, 0, 0 }, leafs[8] = { 0 };
    for (int round = 0; round < 3; round++) {
        struct ggml_cgraph * graph = longer(ctx), * strange = odd(ctx);
        EXPECT(ggml_gallocr_reserve_n(galloc, graph, nodes, leafs) && allocates_well(galloc, graph));
        EXPECT(counts->originals_alive == 0 && counts->buffers_alive == 2);
        size_t ours = ggml_gallocr_get_buffer_size(galloc, 0);
        // Not without being reserved, and what was allocated stays.
        EXPECT(!ggml_gallocr_alloc_graph(galloc, strange) && counts->originals_alive == 0 && runs_well(graph));
        EXPECT(ggml_gallocr_reserve_n(galloc, strange, nodes, leafs) == own);
        EXPECT(ggml_gallocr_alloc_graph(galloc, strange) == own);
        EXPECT(counts->originals_alive == own && counts->buffers_alive == 2);
        EXPECT((ggml_gallocr_get_buffer_size(galloc, 0) == ours) != own);
        // The way back as well.
        unplace(graph);
        EXPECT(!ggml_gallocr_alloc_graph(galloc, graph) && counts->originals_alive == own);
        EXPECT(ggml_gallocr_reserve_n(galloc, graph, nodes, leafs) && allocates_well(galloc, graph));
        EXPECT(counts->originals_alive == 0 && ggml_gallocr_get_buffer_size(galloc, 0) == ours);
    }
    ggml_gallocr_free(galloc);
    EXPECT(counts->originals_alive == 0 && counts->buffers_alive == 0);
    ggml_free(ctx);
}

// Whoever only asks for sizes still uses what he has, whoever has it.
static void sizes_of_unknown_types(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = gapped(ctx), * strange = odd(ctx);
    size_t size = 0;
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
    ggml_gallocr_reserve_n_size(galloc, strange, NULL, NULL, &size);
    EXPECT(size == 1824 && runs_well(graph) && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    EXPECT(mock_counts()->originals_alive == 0);
    EXPECT(ggml_gallocr_alloc_graph(galloc, strange) && ggml_gallocr_get_buffer_size(galloc, 0) == 1824);
    void * data = strange->nodes[1]->data;
    ggml_gallocr_reserve_n_size(galloc, longer(ctx), NULL, NULL, &size);
    EXPECT(size == 640 && ggml_gallocr_get_buffer_size(galloc, 0) == 1824 && strange->nodes[1]->data == data);
    EXPECT(mock_counts()->buffers_alive == 1);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// A graph whose tensors are in ggml's own buffers is not taken over: these buffers would be freed under it.
static void what_is_in_use_is_not_freed(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = odd(ctx);
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph) && mock_counts()->originals_alive == 1);
    graph->nodes[1]->type = GGML_TYPE_F32;
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph) && mock_counts()->originals_alive == 1 && runs_well(graph));
    unplace(graph);
    EXPECT(allocates_well(galloc, graph) && mock_counts()->originals_alive == 0);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Graphs that take turns all the time do not make buffers anew all the time.
static void turns_do_not_cost_buffers(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    int made = mock_counts()->buffers_made;
    for (int round = 0; round < 300; round++) {
        struct ggml_cgraph * graph = gapped(ctx);
        EXPECT(ggml_gallocr_alloc_graph(galloc, odd(ctx)) && allocates_well(galloc, graph));
    }
    EXPECT(mock_counts()->buffers_made - made < 60);
    // Once it is over, ours is back.
    for (int round = 0; round < 70; round++) EXPECT(allocates_well(galloc, gapped(ctx)));
    EXPECT(mock_counts()->originals_alive == 0 && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Random sequences of graphs, with nothing left at the end.
static void random_sequences(void) {
    struct mock_counts * counts = mock_counts();
    for (int sequence = 0; sequence < 60; sequence++) {
        ggml_backend_buffer_type_t types[2] = { mock_type(0), mock_type(2) };
        int several = pick(2);
        ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 1 + several);
        int nodes[8] = { 0, several, 0, several, 0, 0, 0, 0 }, leafs[8] = { 0 };
        for (int round = 0; round < 30; round++) {
            struct ggml_context * ctx = context();
            unsigned kind = pick(4);
            struct ggml_cgraph * graph = kind == 0 ? odd(ctx) : kind == 1 ? longer(ctx) : gapped(ctx);
            size_t sizes[2];
            if (pick(3) == 0) ggml_gallocr_reserve_n_size(galloc, graph, nodes, leafs, sizes);
            bool done = (pick(2) || ggml_gallocr_reserve_n(galloc, graph, nodes, leafs)) && ggml_gallocr_alloc_graph(galloc, graph);
            EXPECT(done || several);
            if (!done) EXPECT(ggml_gallocr_reserve_n(galloc, graph, nodes, leafs) && ggml_gallocr_alloc_graph(galloc, graph));
            EXPECT(kind == 0 ? graph->nodes[3]->data != NULL : runs_well(graph));
            EXPECT(counts->originals_alive <= 1 && counts->buffers_alive <= 1 + several);
            ggml_free(ctx);
        }
        ggml_gallocr_free(galloc);
        EXPECT(counts->originals_alive == 0 && counts->buffers_alive == 0);
    }
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
    if (strcmp(what, "both") == 0) {
        only_that_graph(true, false), only_that_graph(true, true), only_that_graph_of_several_buffers(true);
        sizes_of_unknown_types(), what_is_in_use_is_not_freed(), turns_do_not_cost_buffers(), random_sequences();
        strange_handles(), calls_inside(640);
    }
    if (strcmp(what, "ours") == 0) {
        only_that_graph(false, false), only_that_graph(false, true), only_that_graph_of_several_buffers(false);
    }
    if (strcmp(what, "theirs") == 0) only_originals(), strange_handles(), calls_inside(1824);
    if (strcmp(what, "none") == 0) nobody();
    return 0;
}
