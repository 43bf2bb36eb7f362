// Plans are kept, used again, and never used for another graph.
#include "model.h"

// A graph of a few random nodes. Equal `shape` seeds with other `scale` give the same graph in other sizes; `change` alters
// one thing about it and keeps all counts.
static struct ggml_cgraph * random_graph(struct ggml_context * ctx, unsigned long long shape, int scale, int change) {
    unsigned long long kept = seed;
    seed = shape * 2654435761u + 88172645463325252ull;
    struct ggml_cgraph * graph = mock_graph(ctx, 128);
    struct ggml_tensor * all[128];
    int n = 0;
    for (int i = 0, leafs = 1 + pick(3); i < leafs; i++) {
        struct ggml_tensor * tensor = all[n++] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, (8 << pick(4)) * scale, 1);
        leaf(graph, tensor);
        if (pick(2)) ggml_set_input(tensor);
        if (pick(4) == 0) {
            // The caller's own memory: of the context, and with no buffer.
            struct ggml_init_params params = { 0, NULL, false };
            static struct ggml_context * ours;
            if (!ours) ours = ggml_init(params);
            tensor->data = mock_tensor(ours, GGML_TYPE_F32, 0, tensor->ne[0], 1, NULL, NULL)->data;
        }
    }
    int nodes = 4 + pick(24);
    int changed = change > 0 ? (int) pick(nodes) : -1;
    for (int i = 0; i < nodes; i++) {
        struct ggml_tensor * a = all[pick(n)], * b = all[pick(n)];
        unsigned kind = pick(8), bits = pick(1 << 16);
        if (i == changed && change == 1) a = all[(bits >> 4) % n];
        if (i == changed && change == 2) b = all[(bits >> 4) % n];
        if (i == changed && change == 3) kind = (kind + 1) % 8;
        struct ggml_tensor * tensor;
        switch (kind) {
            case 0: tensor = node(graph, ggml_view_1d(ctx, a, a->ne[0] / 2, a->ne[0] / 4 * 4)); break;
            case 1: tensor = copy_into(ctx, graph, a, b); break;
            case 2: case 3: tensor = op(ctx, graph, GGML_OP_UNARY, a->ne[0], a, NULL); break;
            case 4: tensor = op(ctx, graph, GGML_OP_ADD, a->ne[0], a, b); break;
            case 5: tensor = op(ctx, graph, GGML_OP_FANCY, a->ne[0], a, b); break;
            default: tensor = op(ctx, graph, GGML_OP_MUL_MAT, (8 << bits % 4) * scale, a, b); break;
        }
        if (bits % 16 == 0) ggml_set_output(tensor);
        if (i == changed && change == 4) tensor->flags ^= GGML_TENSOR_FLAG_OUTPUT;
        all[n++] = tensor;
    }
    seed = kept;
    return graph;
}

// Two graphs with equal counts and sizes. ggml would use the plan of one for the other.
static struct ggml_cgraph * diamond(struct ggml_context * ctx, bool crossed) {
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, 64);
    struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, 64, x, NULL);
    struct ggml_tensor * b = op(ctx, graph, GGML_OP_MUL_MAT, 64, a, NULL);
    struct ggml_tensor * c = op(ctx, graph, GGML_OP_MUL_MAT, 64, b, NULL);
    ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 64, c, crossed ? a : b));
    return graph;
}

static void changed_edges_are_noticed(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(ggml_gallocr_reserve(galloc, diamond(ctx, false)));
    for (int round = 0; round < 4; round++) {
        EXPECT(allocates_well(galloc, diamond(ctx, round % 2)));
    }
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// What may run in place at one time may not at another: it is another operation, or a source is repeated to fill the shape.
static void places_that_are_taken_over_are_looked_at(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    for (int round = 0; round < 6; round++) {
        struct ggml_cgraph * graph = mock_graph(ctx, 16);
        struct ggml_tensor * x = input(ctx, graph, 64);
        struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, round % 3 == 1 ? 8 : 64, x, NULL);
        struct ggml_tensor * b = op(ctx, graph, round % 3 == 2 ? GGML_OP_MUL_MAT : GGML_OP_ADD, 64, a, x);
        ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 64, b, NULL));
        EXPECT(allocates_well(galloc, graph));
        EXPECT(round % 3 || b->data == a->data);
    }
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// A leaf, and a node without an operation in the bytes of the leaf, which is dead by then; the next time both are one
// tensor, which must live on.
static void merged_tensors_are_noticed(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    for (int merged = 0; merged < 2; merged++) {
        struct ggml_cgraph * graph = mock_graph(ctx, 16);
        struct ggml_tensor * x = leaf(graph, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 256, 1));
        struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, 8, x, NULL);
        struct ggml_tensor * b = op(ctx, graph, GGML_OP_MUL_MAT, 256, a, NULL);
        struct ggml_tensor * c = op(ctx, graph, GGML_OP_MUL_MAT, 8, b, NULL);
        struct ggml_tensor * y = node(graph, merged ? x : ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 256, 1));
        ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 8, c, y));
        EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
        // In the first graph nobody writes y, so there is nothing to be read.
        EXPECT(merged ? runs_well(graph) : x->data == y->data);
    }
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void random_changes_are_noticed(int type) {
    for (int shape = 0; shape < 150; shape++) {
        ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(type));
        for (int round = 0; round < 12; round++) {
            struct ggml_context * ctx = context();
            struct ggml_cgraph * graph = random_graph(ctx, shape, 1, round % 3 ? round % 5 : 0);
            EXPECT(allocates_well(galloc, graph));
            ggml_free(ctx);
        }
        ggml_gallocr_free(galloc);
    }
}

// The same tensors again, one of which has changed in place: another source, another operation, another flag.
static void changes_of_the_same_tensors_are_noticed(int type) {
    for (int shape = 0; shape < 150; shape++) {
        struct ggml_context * ctx = context();
        ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(type));
        struct ggml_cgraph * graph = random_graph(ctx, shape, 1, 0);
        for (int round = 0; round < 12; round++) {
            EXPECT(allocates_well(galloc, graph));
            void * first = graph->nodes[0]->data;
            EXPECT(allocates_well(galloc, graph) && graph->nodes[0]->data == first);
            unplace(graph);
            int changed = 1 + (int) pick(graph->n_nodes - 1);
            struct ggml_tensor * tensor = graph->nodes[changed];
            unsigned kind = tensor->view_src ? 2 : pick(3);
            if (kind == 0) tensor->src[pick(2)] = graph->nodes[pick(changed)];
            if (kind == 1) tensor->op = tensor->op == GGML_OP_ADD ? GGML_OP_MUL_MAT : GGML_OP_ADD;
            if (kind == 2) tensor->flags ^= GGML_TENSOR_FLAG_OUTPUT;
        }
        ggml_gallocr_free(galloc);
        ggml_free(ctx);
    }
}

// A prompt and a token graph, and some more, in turn.
static void alternating_graphs_allocate_once(void) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    int after_first = 0;
    for (int round = 0; round < 100; round++) {
        for (int shape = 0; shape < 12; shape++) {
            struct ggml_context * ctx = context();
            EXPECT(allocates_well(galloc, random_graph(ctx, shape, 1 + shape % 3, 0)));
            ggml_free(ctx);
        }
        if (round == 0) after_first = mock_counts()->buffers_made;
        EXPECT(mock_counts()->buffers_made == after_first);
    }
    EXPECT(mock_counts()->original_reserves == 0);
    ggml_gallocr_free(galloc);
}

static void smaller_graphs_use_the_plan_and_larger_ones_grow(void) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    for (int shape = 0; shape < 100; shape++) {
        struct ggml_context * ctx = context();
        EXPECT(ggml_gallocr_reserve(galloc, random_graph(ctx, shape, 4, 0)));
        int made = mock_counts()->buffers_made;
        size_t size = ggml_gallocr_get_buffer_size(galloc, 0);
        for (int scale = 1; scale <= 4; scale++) {
            EXPECT(allocates_well(galloc, random_graph(ctx, shape, scale, 0)));
        }
        EXPECT(mock_counts()->buffers_made == made && ggml_gallocr_get_buffer_size(galloc, 0) == size);
        ggml_free(ctx);
    }
    size_t before = ggml_gallocr_get_buffer_size(galloc, 0);
    struct ggml_context * ctx = context();
    EXPECT(allocates_well(galloc, random_graph(ctx, 1, 64, 0)));
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) > before);
    EXPECT(allocates_well(galloc, random_graph(ctx, 2, 1, 0)));
    ggml_free(ctx);
    ggml_gallocr_free(galloc);
}

// The last byte of a buffer that a graph's tensors take.
static size_t reach(struct ggml_cgraph * graph) {
    size_t end = 0;
    for (int i = 0; i < graph->n_nodes + graph->n_leafs; i++) {
        struct ggml_tensor * tensor = i < graph->n_nodes ? graph->nodes[i] : graph->leafs[i - graph->n_nodes];
        if (!tensor->buffer) continue;
        size_t at = (char *) tensor->data - (char *) ggml_backend_buffer_get_base(tensor->buffer) + mock_nbytes(tensor);
        if (at > end) end = at;
    }
    return end;
}

// A chain whose tensors have so many elements.
static struct ggml_cgraph * chain(struct ggml_context * ctx, int64_t size) {
    struct ggml_cgraph * graph = mock_graph(ctx, 32);
    struct ggml_tensor * last = input(ctx, graph, size);
    for (int i = 0; i < 20; i++) last = op(ctx, graph, GGML_OP_MUL_MAT, size * (1 + i % 3), last, NULL);
    ggml_set_output(last);
    return graph;
}

static bool have_same_places(struct ggml_cgraph * one, struct ggml_cgraph * other) {
    bool same = one->n_nodes == other->n_nodes;
    for (int i = 0; same && i < one->n_nodes; i++) same = one->nodes[i]->data == other->nodes[i]->data;
    return same;
}

// A graph far below the reserved one stays at the bottom of its buffer, so that the rest of it need not be resident. However
// many sizes there are and in which order they come, nothing is reallocated, and there are a few plans.
static void small_graphs_stay_at_the_bottom(void) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_context * ctx = context();
    EXPECT(ggml_gallocr_reserve(galloc, chain(ctx, 4096)));
    int made = mock_counts()->buffers_made;
    size_t size = ggml_gallocr_get_buffer_size(galloc, 0);
    static const int64_t some[] = { 8, 8, 64, 8, 100, 8, 300, 64, 8, 900, 8, 300, 900, 8 };
    size_t most = 0;
    for (int i = 0; i < 14; i++) {
        struct ggml_cgraph * graph = chain(ctx, some[i]);
        EXPECT(allocates_well(galloc, graph));
        // No further than what is touched already, or four times what it needs.
        size_t limit = size / 4096 * some[i] * 4;
        EXPECT(reach(graph) <= size / 4 && reach(graph) <= (limit > most ? limit : most));
        if (reach(graph) > most) most = reach(graph);
    }
    // Once all is touched there is nothing to be gained.
    struct ggml_cgraph * whole = chain(ctx, 4096), * tiny = chain(ctx, 8);
    EXPECT(allocates_well(galloc, whole) && allocates_well(galloc, tiny) && have_same_places(tiny, whole));
    // Nor after a graph of another kind, for which no buffer is made.
    struct ggml_cgraph * again = chain(ctx, 8);
    EXPECT(allocates_well(galloc, gapped(ctx)) && allocates_well(galloc, again) && have_same_places(again, whole));
    EXPECT(mock_counts()->buffers_made == made && ggml_gallocr_get_buffer_size(galloc, 0) == size);
    // In other memory everything is where the plan of the largest has it.
    ggml_gallocr_t other = ggml_gallocr_new(mock_type(2));
    struct ggml_cgraph * large = chain(ctx, 4096), * small = chain(ctx, 8);
    EXPECT(allocates_well(other, large) && allocates_well(other, small));
    char * base = ggml_backend_buffer_get_base(large->nodes[0]->buffer);
    EXPECT(small->nodes[0]->buffer == large->nodes[0]->buffer && (char *) small->nodes[19]->data - base == (char *) large->nodes[19]->data - base);
    ggml_gallocr_free(other);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Prompts of every length, up or down at first and then both, with tokens in between.
static void many_sizes(bool up) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_context * ctx = context();
    EXPECT(ggml_gallocr_reserve(galloc, chain(ctx, 512)));
    for (int round = 0; round < 20; round++) {
        for (int i = 1; i <= 512; i += 7) {
            EXPECT(allocates_well(galloc, chain(ctx, (round % 2 == 0) == up ? i : 513 - i)));
            EXPECT(allocates_well(galloc, chain(ctx, 1)));
        }
        if (round == 1) fprintf(stderr, "first rounds done\n");
    }
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// A graph that was planned, and then a smaller one by the same plan. Once a failure has cost the buffers, the plan is still
// the first one's.
static void plans_without_buffers_know_their_graph(void) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_context * ctx = context();
    EXPECT(allocates_well(galloc, chain(ctx, 64)) && allocates_well(galloc, chain(ctx, 48)));
    mock_fail_after(0);
    EXPECT(!ggml_gallocr_alloc_graph(galloc, chain(ctx, 512)));
    mock_fail_after(-1);
    fprintf(stderr, "all planned\n");
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 0);
    EXPECT(allocates_well(galloc, chain(ctx, 64)) && allocates_well(galloc, chain(ctx, 48)));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// When the plan of the largest graph grows, those of far smaller ones stay where they are.
static void small_plans_outlive_growth(void) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_context * ctx = context();
    EXPECT(ggml_gallocr_reserve(galloc, chain(ctx, 512)));
    EXPECT(allocates_well(galloc, chain(ctx, 8)) && allocates_well(galloc, chain(ctx, 100)));
    EXPECT(ggml_gallocr_reserve(galloc, chain(ctx, 4096)));
    size_t size = ggml_gallocr_get_buffer_size(galloc, 0);
    fprintf(stderr, "all planned\n");
    struct ggml_cgraph * tiny = chain(ctx, 8), * small = chain(ctx, 100);
    EXPECT(allocates_well(galloc, tiny) && reach(tiny) <= size / 512 && allocates_well(galloc, small) && reach(small) <= size / 40);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// A node that takes over the bytes of its sixth source.
static struct ggml_cgraph * sixth(struct ggml_context * ctx, int64_t size) {
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, size + 1), * a = op(ctx, graph, GGML_OP_MUL_MAT, size, x, NULL);
    struct ggml_tensor * b = op(ctx, graph, GGML_OP_ADD, size, x, x);
    for (int j = 2; j < 5; j++) b->src[j] = x;
    b->src[5] = a;
    ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, size, b, x));
    return graph;
}

// A graph that grows has one plan, so that others are kept.
static void outgrown_plans_make_room(void) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_context * ctx = context();
    for (int shape = 0; shape < 12; shape++) EXPECT(allocates_well(galloc, random_graph(ctx, shape, 1, 0)));
    for (int i = 1; i <= 12; i++) {
        struct ggml_cgraph * graph = sixth(ctx, 4096 * i);
        EXPECT(allocates_well(galloc, graph) && graph->nodes[1]->data == graph->nodes[0]->data);
    }
    fprintf(stderr, "all planned\n");
    for (int shape = 0; shape < 12; shape++) EXPECT(allocates_well(galloc, random_graph(ctx, shape, 1, 0)));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void a_graph_can_be_allocated_twice(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = random_graph(ctx, 3, 1, 0);
    EXPECT(allocates_well(galloc, graph));
    int made = mock_counts()->buffers_made;
    void * first = graph->nodes[0]->data, * last = graph->nodes[graph->n_nodes - 1]->data;
    EXPECT(ggml_gallocr_reserve(galloc, graph));
    EXPECT(allocates_well(galloc, graph));
    EXPECT(graph->nodes[0]->data == first && graph->nodes[graph->n_nodes - 1]->data == last);
    unplace(graph);
    EXPECT(allocates_well(galloc, graph));
    EXPECT(mock_counts()->buffers_made == made);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Buffers 0 and 2 are of one type.
static void several_buffers_must_be_reserved(void) {
    ggml_backend_buffer_type_t types[3] = { mock_type(0), mock_type(2), mock_type(0) };
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 3);
    int nodes[64], leafs[64], made = 0;
    for (int round = 0; round < 20; round++) {
        for (int shape = 0; shape < 5; shape++) {
            struct ggml_context * ctx = context();
            struct ggml_cgraph * graph = random_graph(ctx, shape, 1, 0);
            for (int i = 0; i < graph->n_nodes; i++) nodes[i] = (i + shape) / 3 % 3;
            for (int i = 0; i < graph->n_leafs; i++) leafs[i] = (i + shape) % 3;
            // It was another graph's turn.
            EXPECT(!ggml_gallocr_alloc_graph(galloc, graph));
            size_t sizes[3] = { 1, 1, 1 };
            ggml_gallocr_reserve_n_size(galloc, graph, nodes, leafs, sizes);
            EXPECT(sizes[0] == sizes[2]);
            EXPECT(ggml_gallocr_reserve_n(galloc, graph, nodes, leafs));
            EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) >= sizes[0]);
            EXPECT(ggml_gallocr_get_buffer_size(galloc, 1) >= sizes[1]);
            EXPECT(ggml_gallocr_get_buffer_size(galloc, 2) == 0);
            EXPECT(allocates_well(galloc, graph));
            ggml_free(ctx);
        }
        if (round == 0) made = mock_counts()->buffers_made;
        EXPECT(mock_counts()->buffers_made == made);
    }
    ggml_gallocr_free(galloc);
    // Two ids of one type are still two buffers to the caller.
    ggml_backend_buffer_type_t same[2] = { mock_type(0), mock_type(0) };
    struct ggml_context * ctx = context();
    struct ggml_cgraph * graph = random_graph(ctx, 0, 1, 0);
    galloc = ggml_gallocr_new_n(same, 2);
    EXPECT(!ggml_gallocr_alloc_graph(galloc, graph));
    EXPECT(ggml_gallocr_reserve_n(galloc, graph, NULL, NULL) && allocates_well(galloc, graph));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void limited_buffers_are_several(void) {
    mock_type(1)->max_size = 1024;
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(1));
    for (int shape = 0; shape < 100; shape++) {
        struct ggml_context * ctx = context();
        EXPECT(allocates_well(galloc, random_graph(ctx, shape, 1, 0)));
        ggml_free(ctx);
    }
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) > 1024);
    ggml_gallocr_free(galloc);
    mock_type(1)->max_size = SIZE_MAX;
}

static void sizes_are_asked_for_without_taking_anything(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    int made = mock_counts()->buffers_made;
    size_t size = 0;
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 0);
    ggml_gallocr_reserve_n_size(galloc, gapped(ctx), NULL, NULL, &size);
    EXPECT(size == 640 && mock_counts()->buffers_made == made && ggml_gallocr_get_buffer_size(galloc, 0) == 0);
    EXPECT(allocates_well(galloc, gapped(ctx)));
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    // A plan that nobody has asked memory for is not used for a smaller graph.
    ggml_gallocr_t other = ggml_gallocr_new(mock_type(0));
    ggml_gallocr_reserve_n_size(other, random_graph(ctx, 7, 16, 0), NULL, NULL, &size);
    EXPECT(allocates_well(other, random_graph(ctx, 7, 1, 0)));
    EXPECT(ggml_gallocr_get_buffer_size(other, 0) < size / 8);
    ggml_gallocr_free(other);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// ggml frees the root of an output that is a view and is read. Nobody's results may be lost.
static void outputs_that_are_views_survive(int type) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(type));
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, 64);
    struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, 64, x, NULL);
    struct ggml_tensor * v = node(graph, ggml_view_1d(ctx, a, 32, 0));
    ggml_set_output(v);
    struct ggml_tensor * b = op(ctx, graph, GGML_OP_MUL_MAT, 64, v, NULL);
    for (int i = 0; i < 6; i++) b = op(ctx, graph, GGML_OP_MUL_MAT, 64, b, NULL);
    ggml_set_output(b);
    EXPECT(allocates_well(galloc, graph));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Tensors of no bytes have a place, and views of them do no harm.
static void empty_tensors_do_no_harm(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, 0);
    struct ggml_tensor * v = node(graph, ggml_view_1d(ctx, x, 0, 0));
    ggml_set_output(op(ctx, graph, GGML_OP_UNARY, 0, v, NULL));
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph) && ggml_gallocr_alloc_graph(galloc, graph));
    EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 0);
    EXPECT(allocates_well(galloc, gapped(ctx)));
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// A batch without outputs: views that start far behind the end of an empty root, as a mixture of experts has them. In
// sequence with batches that have some.
static struct ggml_cgraph * experts(struct ggml_context * ctx, int64_t rows) {
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, 64);
    struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, rows * 4, x, NULL);
    struct ggml_tensor * v = node(graph, ggml_view_1d(ctx, a, rows, rows ? (size_t) rows * 12 : 8192));
    struct ggml_tensor * w = node(graph, ggml_view_1d(ctx, v, rows, 0));
    struct ggml_tensor * b = op(ctx, graph, GGML_OP_ADD, rows, w, v);
    ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 32, b, x));
    return graph;
}

static void views_of_nothing_are_never_out_of_range(int type) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(type));
    int64_t rows[] = { 0, 16, 0, 4, 0, 0, 32, 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) EXPECT(allocates_well(galloc, experts(ctx, rows[i])));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// A cast is a copy that names itself as its destination.
static void copies_that_name_themselves_are_planned(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, 64);
    struct ggml_tensor * a = op(ctx, graph, GGML_OP_CPY, 64, x, NULL);
    a->src[1] = a;
    struct ggml_tensor * b = op(ctx, graph, GGML_OP_MUL_MAT, 64, a, x);
    ggml_set_output(op(ctx, graph, GGML_OP_ADD, 64, b, a));
    EXPECT(allocates_well(galloc, graph));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// An input that no node reads: how large the buffer is, depends on the environment.
static void unread_inputs(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    input(ctx, graph, 256);
    struct ggml_tensor * x = input(ctx, graph, 64);
    struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, 64, x, NULL);
    ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 256, a, NULL));
    EXPECT(allocates_well(galloc, graph));
    printf("%zu\n", ggml_gallocr_get_buffer_size(galloc, 0));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// Some backends pad a tensor by what its operation is told.
static void padding_is_kept(void) {
    struct ggml_context * ctx = context();
    mock_type(0)->padding = 100;
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(allocates_well(galloc, random_graph(ctx, 5, 1, 0)));
    ggml_gallocr_free(galloc);
    mock_type(0)->padding = 0;
    ggml_free(ctx);
}

int run(int argc, char ** argv) {
    if (argc > 1 && strcmp(argv[1], "alternating") == 0) {
        alternating_graphs_allocate_once();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "kept") == 0) {
        plans_without_buffers_know_their_graph();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "grown") == 0) {
        small_plans_outlive_growth();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "outgrown") == 0) {
        outgrown_plans_make_room();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "unread") == 0) {
        unread_inputs();
        return 0;
    }
    if (argc > 1 && (strcmp(argv[1], "up") == 0 || strcmp(argv[1], "down") == 0)) {
        many_sizes(strcmp(argv[1], "up") == 0);
        return 0;
    }
    changed_edges_are_noticed();
    places_that_are_taken_over_are_looked_at();
    merged_tensors_are_noticed();
    random_changes_are_noticed(0);
    random_changes_are_noticed(2);
    changes_of_the_same_tensors_are_noticed(0);
    changes_of_the_same_tensors_are_noticed(2);
    alternating_graphs_allocate_once();
    smaller_graphs_use_the_plan_and_larger_ones_grow();
    small_graphs_stay_at_the_bottom();
    a_graph_can_be_allocated_twice();
    several_buffers_must_be_reserved();
    limited_buffers_are_several();
    sizes_are_asked_for_without_taking_anything();
    outputs_that_are_views_survive(0);
    outputs_that_are_views_survive(2);
    empty_tensors_do_no_harm();
    views_of_nothing_are_never_out_of_range(0);
    views_of_nothing_are_never_out_of_range(2);
    copies_that_name_themselves_are_planned();
    padding_is_kept();
    ggml_gallocr_free(NULL);
    EXPECT(mock_counts()->buffers_alive == 0 && mock_counts()->originals_made == 0);
    return 0;
}
