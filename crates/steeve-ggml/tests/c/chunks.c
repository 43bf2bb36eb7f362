// Random sequences of graphs in memories with a limit for each buffer and for all, on ggml's allocator and on ours. After
// every step:
//
//   - a memory whose buffers were made anew has no more bytes than with ggml
//   - no memory has more bytes than the most that it had, or was asked for, with ggml
//   - ours fails only where ggml does
//
// Arguments: `one` or `two` memories, how many sequences, and `exact` where every size has to be ggml's own.
//
// That the reference is what ggml does is seen by running this on a real ggml's allocator instead of ours, with the stand-in
// backend in between:
//
//   cc -rdynamic -DREAL_GGML -o real chunks.c main.c ggml.c libggml-base.so && ./real two 20000 exact
#include "reference.h"

#ifdef REAL_GGML
// After a reserve that has failed, its alloc would use buffers that are not there.
static const bool reserves_after_failure = true;
#else
static const bool reserves_after_failure = false;
#endif

static struct mock_counts * counts;

// The graph of a sequence's topology at some scale. Each topology has its own number of nodes, so that ggml never takes one
// for another. What runs in place at one scale does so at all.
static struct ggml_cgraph * graph_of(struct ggml_context * ctx, unsigned long long sequence, int topology, int scale, int * nodes, int * leafs) {
    unsigned long long kept = seed;
    seed = (sequence * 8 + topology + 1) * 2654435761u + 88172645463325252ull;
    for (int i = 0; i < 8; i++) pick(2);
    struct ggml_cgraph * graph = mock_graph(ctx, TENSORS);
    struct ggml_tensor * all[TENSORS];
    int n = 0, n_leafs = 1 + pick(3), n_nodes = 3 + 4 * topology + pick(4), spread = 1 + pick(40);
    for (int i = 0; i < n_leafs; i++) {
        struct ggml_tensor * tensor = all[n++] = leaf(graph, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, (1 + pick(spread)) * scale, 1));
        leafs[i] = pick(2);
        if (pick(2)) ggml_set_input(tensor);
    }
    for (int i = 0; i < n_nodes; i++) {
        // Mostly what was made last: a chain with branches.
        struct ggml_tensor * a = all[n - 1 - pick(pick(2) ? n : 1)], * b = all[pick(n)];
        unsigned kind = pick(8), size = 1 + pick(spread), flag = pick(12);
        struct ggml_tensor * tensor;
        switch (kind) {
            case 0: tensor = node(graph, ggml_view_1d(ctx, a, a->ne[0], 0)); break;
            case 1: tensor = op(ctx, graph, GGML_OP_UNARY, a->ne[0], a, NULL); break;
            case 2: tensor = op(ctx, graph, GGML_OP_ADD, a->ne[0], a, b); break;
            default: tensor = op(ctx, graph, GGML_OP_MUL_MAT, (int64_t) size * scale, a, b); break;
        }
        nodes[i] = pick(3) == 0;
        if (flag == 0 && kind != 0) ggml_set_output(tensor);
        all[n++] = tensor;
    }
    seed = kept;
    return graph;
}

static int failures, surprises, again, kept_buffers;

static void sequence(unsigned long long number, int n_memories, bool exact) {
    static const int pairs[4][2] = { { 0, 1 }, { 2, 3 }, { 1, 3 }, { 3, 0 } };
    const int * pair = pairs[pick(4)];
    static const size_t limits[6] = { 512, 1000, 2048, 4096, 16384, SIZE_MAX };
    bool shared = pick(2);
    size_t totals[2];
    struct mock_device devices[2] = { { 0, 0 }, { 0, 0 } };
    struct reference_device theirs[2] = { { 0, 0 }, { 0, 0 } };
    ggml_backend_buffer_type_t types[MEMORIES];
    static struct reference reference;
    memset(&reference, 0, sizeof reference);
    reference.n_memories = n_memories, reference.n_nodes = -1;
    for (int m = 0; m < 2; m++) {
        totals[m] = pick(3) ? 1500 + pick(20000) : SIZE_MAX / 2;
        devices[m].total = theirs[m].total = totals[m];
    }
    for (int m = 0; m < n_memories; m++) {
        types[m] = mock_type(pair[m]);
        types[m]->max_size = limits[pick(6)];
        types[m]->device = &devices[shared ? 0 : m];
        reference.memories[m].type = types[m];
        reference.memories[m].device = &theirs[shared ? 0 : m];
    }
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, n_memories);
    size_t most[MEMORIES] = { 0 };
    int topologies = 1 + pick(5), largest = 1 + pick(12);
    bool has_failed = false;
    for (int step = 0; step < 14; step++) {
        struct ggml_context * ctx = context();
        int nodes[TENSORS], leafs[TENSORS], before[MEMORIES];
        struct ggml_cgraph * graph = graph_of(ctx, number, pick(topologies), 1 + pick(largest), nodes, leafs);
        const int * node_ids = n_memories > 1 ? nodes : NULL, * leaf_ids = n_memories > 1 ? leafs : NULL;
        for (int m = 0; m < n_memories; m++) before[m] = types[m]->made;
        // ggml first, on a graph that has no addresses yet.
        bool reserves = pick(3) > 0 || (has_failed && reserves_after_failure), allocates = !reserves || pick(2);
        bool they = !reserves || reference_reserve(&reference, graph, node_ids, leaf_ids);
        bool they_fail = !they;
        if (they && allocates && !reference_alloc(&reference, graph)) they = false, they_fail = reference.n_memories == 1;
        bool we = !reserves || ggml_gallocr_reserve_n(galloc, graph, node_ids, leaf_ids);
        if (we && allocates) {
            we = ggml_gallocr_alloc_graph(galloc, graph);
            EXPECT(!we || runs_well(graph));
        }
        if (they && !we) {
            fprintf(stderr, "sequence %llu, step %d: ours fails\n", number, step);
            exit(1);
        }
        has_failed = they_fail;
        failures += they_fail, surprises += we && they_fail;
        for (int m = 0; m < n_memories; m++) {
            size_t their_size = reference_size(&reference.memories[m]), our_size = ggml_gallocr_get_buffer_size(galloc, m);
            // What ggml could not have counts as if it had.
            size_t asked = they_fail ? planned_size(&reference.memories[m]) : 0;
            if (asked < their_size) asked = their_size;
            if (asked > most[m]) most[m] = asked;
            bool made = types[m]->made != before[m];
            again += made, kept_buffers += !made;
            EXPECT(our_size == types[m]->alive);
            if (made && our_size > asked) {
                fprintf(stderr, "sequence %llu, step %d, memory %d: made anew with %zu bytes, ggml has %zu\n", number, step, m, our_size, their_size);
                exit(1);
            }
            if (our_size > most[m]) {
                fprintf(stderr, "sequence %llu, step %d, memory %d: %zu bytes, ggml never had more than %zu\n", number, step, m, our_size, most[m]);
                exit(1);
            }
            if (exact && our_size != their_size) {
                fprintf(stderr, "sequence %llu, step %d, memory %d: %zu bytes, ggml has %zu\n", number, step, m, our_size, their_size);
                exit(1);
            }
        }
        ggml_free(ctx);
    }
    ggml_gallocr_free(galloc);
    for (int m = 0; m < n_memories; m++) {
        EXPECT(types[m]->alive == 0);
        types[m]->max_size = SIZE_MAX, types[m]->device = NULL;
    }
}

// Graphs one after the other on a device with at most 1000 bytes for each buffer and 2200 in all.
static void figures(void) {
    struct mock_device device = { 2200, 0 };
    ggml_backend_buffer_type_t type = mock_type(3);
    type->max_size = 1000, type->device = &device;
    ggml_gallocr_t galloc = ggml_gallocr_new(type);
    static const struct { int leafs; int64_t bytes[6]; size_t size; } wanted[] = {
        { 2, { 992, 16 }, 1024 }, { 2, { 528, 528 }, 1072 }, { 6, { 352, 352, 352, 352, 352, 352 }, 2128 }, { 2, { 992, 16 }, 1024 },
    };
    for (int i = 0; i < 4; i++) {
        struct ggml_context * ctx = context();
        struct ggml_cgraph * graph = mock_graph(ctx, 16);
        struct ggml_tensor * last = NULL, * sources[6];
        for (int j = 0; j < wanted[i].leafs; j++) sources[j] = input(ctx, graph, wanted[i].bytes[j] / 4);
        last = op(ctx, graph, GGML_OP_FANCY, 4, sources[0], sources[1]);
        for (int j = 2; j < wanted[i].leafs; j++) last->src[j] = sources[j];
        ggml_set_output(last);
        EXPECT(ggml_gallocr_reserve(galloc, graph) && allocates_well(galloc, graph));
        EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == wanted[i].size && device.alive == wanted[i].size);
        ggml_free(ctx);
    }
    ggml_gallocr_free(galloc);
    type->max_size = SIZE_MAX, type->device = NULL;
}

int run(int argc, char ** argv) {
    EXPECT(argc >= 3);
    counts = mock_counts();
    int n_memories = strcmp(argv[1], "two") == 0 ? 2 : 1;
    bool exact = argc > 3 && strcmp(argv[3], "exact") == 0;
    for (int number = 0; number < atoi(argv[2]); number++) sequence(number, n_memories, exact);
    printf("%d failures of ggml's, %d of them not ours, buffers made anew %d times, kept %d times\n", failures, surprises, again, kept_buffers);
    figures();
    EXPECT(counts->buffers_alive == 0);
    return 0;
}
