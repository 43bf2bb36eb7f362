// Random sequences of graphs in memories with a limit for each buffer and for all, on ggml's allocator and on ours. After
// every step:
//
//   - a memory whose buffers were made anew has no more bytes than with ggml
//   - no memory has more bytes than the most that it had, or was asked for, with ggml
//   - ours fails only where ggml does
//   - what ours has allocated computes what it should
//
// Arguments: `one` or `two` memories, how many sequences, and
//
//   exact    every size has to be ggml's own
//   edges    among the graphs are some of equal counts and with other edges. ggml takes one for another if sizes allow it, and
//            uses a plan in which live tensors overlap. Ours does not; it is held to a ggml that is told to reserve then
//
// ggml is the reference in reference.h. With a real ggml's own allocator in the same process (see real.h and .ci/proofs):
//
//   cc -DREAL_GGML -o chunks chunks.c main.c -ldl && ./chunks libggml-base.so libsteeve_ggml.so two 2000
#include "theirs.h"

static struct mock_counts * counts;

// A graph of a sequence: its topology, which of the edges that such a graph may have, and how large it is.
struct graph_choice { unsigned long long sequence; int topology, variant, scale; };

struct built_graph { struct ggml_context * ctx; struct ggml_cgraph * graph; int nodes[TENSORS], leafs[TENSORS]; };

static void begin(unsigned long long number) {
    seed = number * 2654435761u + 88172645463325252ull;
    for (int i = 0; i < 8; i++) pick(2);
}

// Builds a graph. Each topology has its own number of nodes, so that ggml never takes one for another. What runs in place at one
// scale does so at all.
static struct built_graph build(struct graph_choice choice) {
    unsigned long long kept = seed, edges;
    begin(choice.sequence * 64 + choice.topology * 8 + choice.variant + 1);
    edges = seed;
    begin(choice.sequence * 64 + choice.topology * 8 + 1);
    struct built_graph built = { .ctx = context() };
    struct ggml_cgraph * graph = built.graph = mock_graph(built.ctx, TENSORS);
    struct ggml_tensor * all[TENSORS];
    int n = 0, n_leafs = 1 + pick(3), n_nodes = 3 + 4 * choice.topology + pick(4), spread = 1 + pick(40), scale = choice.scale;
    for (int i = 0; i < n_leafs; i++) {
        struct ggml_tensor * tensor = all[n++] = leaf(graph, ggml_new_tensor_2d(built.ctx, GGML_TYPE_F32, (1 + pick(spread)) * scale, 1));
        built.leafs[i] = pick(2);
        if (pick(2)) ggml_set_input(tensor);
    }
    for (int i = 0; i < n_nodes; i++) {
        unsigned kind = pick(8), size = 1 + pick(spread), flag = pick(12);
        built.nodes[i] = pick(3) == 0;
        unsigned long long shape = seed;
        seed = edges;
        // Mostly what was made last: a chain with branches.
        struct ggml_tensor * a = all[n - 1 - pick(pick(2) ? n : 1)], * b = all[pick(n)], * tensor;
        edges = seed, seed = shape;
        switch (kind) {
            case 0: tensor = node(graph, ggml_view_1d(built.ctx, a, a->ne[0], 0)); break;
            case 1: tensor = op(built.ctx, graph, GGML_OP_UNARY, a->ne[0], a, NULL); break;
            case 2: tensor = op(built.ctx, graph, GGML_OP_ADD, a->ne[0], a, b); break;
            default: tensor = op(built.ctx, graph, GGML_OP_MUL_MAT, (int64_t) size * scale, a, b); break;
        }
        if (flag == 0 && kind != 0) ggml_set_output(tensor);
        all[n++] = tensor;
    }
    seed = kept;
    return built;
}

static unsigned long long number_of(const struct ggml_cgraph * graph, const struct ggml_tensor * tensor) {
    for (int i = 0; i < graph->n_leafs; i++) {
        if (graph->leafs[i] == tensor) return 1 + i;
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i] == tensor) return 1 + TENSORS + i;
    }
    return 0;
}

// A number that graphs have in common which differ in sizes alone.
static unsigned long long edges_of(const struct ggml_cgraph * graph) {
    unsigned long long hash = graph->n_leafs * TENSORS + graph->n_nodes;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor * tensor = graph->nodes[i];
        hash = hash * 1099511628211ull + tensor->op * 8 + tensor->flags % 4;
        for (int j = 0; j < 2; j++) hash = hash * 1099511628211ull + number_of(graph, tensor->src[j]);
    }
    return hash;
}

// What the sequences have met, over all steps and memories.
static struct {
    int steps, failures, only_theirs, made, kept, shrank, in_chunks, their_chunks, smaller;
    // Graphs with other edges than the last; those that ggml has a stale plan for; what it does not compute then (which only a
    // real one shows); memories in which ours has more then.
    int other_edges, stale, spoilt, above_stale;
} met;

static void fail(unsigned long long number, int step, int memory, const char * what, size_t ours_has, size_t they_have) {
    fprintf(stderr, "sequence %llu, step %d, memory %d: %s: ours %zu bytes, ggml %zu\n", number, step, memory, what, ours_has, they_have);
    exit(1);
}

// A ggml that is not told when edges change.
struct untold { struct theirs theirs; bool has_failed; unsigned long long planned; };

// Whether its plan was stale.
static bool stale_step(struct untold * stale, struct graph_choice choice, bool reserves, bool allocates) {
    struct built_graph built = build(choice);
    struct theirs * theirs = &stale->theirs;
    bool several = theirs->reference.n_memories > 1;
    unsigned long long edges = edges_of(built.graph);
    if (stale->has_failed && reserves_after_failure) reserves = true;
    // It would end the process where a leaf does not fit into the buffer.
    if (reference_fits(&theirs->reference, built.graph) && reference_overruns(&theirs->reference, built.graph)) reserves = true;
    bool can = !reserves || their_reserve(theirs, built.graph, several ? built.nodes : NULL, several ? built.leafs : NULL);
    if (reserves) stale->planned = edges;
    stale->has_failed = !can;
    bool is_stale = false;
    if (can && allocates) {
        bool fits = reference_fits(&theirs->reference, built.graph);
        is_stale = fits && edges != stale->planned;
        can = their_alloc(theirs, built.graph);
        stale->has_failed = !can && !several;
        if (!fits && !several) stale->planned = edges;
        met.stale += is_stale;
#ifdef REAL_GGML
        met.spoilt += is_stale && !is_computed(built.graph, NULL);
#endif
    }
    ggml_free(built.ctx);
    return is_stale;
}

// What may be asked of a sequence.
struct question { int n_memories; bool exact, edges; };

static void sequence(unsigned long long number, struct question question) {
    // In the last both are one memory.
    static const int pairs[5][2] = { { 0, 1 }, { 2, 3 }, { 1, 3 }, { 3, 0 }, { 0, 0 } };
    static const size_t limits[6] = { 512, 1000, 2048, 4096, 16384, SIZE_MAX };
    const int n_memories = question.n_memories, * pair = pairs[pick(5)];
    bool shared = pick(2);
    struct mock_device devices[2] = { { 0, 0 }, { 0, 0 } };
    ggml_backend_buffer_type_t types[MEMORIES];
    for (int m = 0; m < 2; m++) devices[m].total = pick(3) ? 1500 + pick(20000) : SIZE_MAX / 2;
    for (int m = 0; m < n_memories; m++) {
        types[m] = mock_type(pair[m]);
        types[m]->max_size = limits[pick(6)];
        types[m]->device = &devices[shared ? 0 : m];
    }
    // Where a reserve fails with one memory given twice, ggml frees its buffers twice later. So there it must not fail.
    if (n_memories > 1 && types[0] == types[1]) {
        devices[0].total = devices[1].total = SIZE_MAX / 2;
        if (types[0]->max_size < 4096) types[0]->max_size = 4096;
    }
    static struct theirs theirs;
    static struct untold stale;
    their_new(&theirs, types, n_memories, 4);
    their_new(&stale.theirs, types, n_memories, 8);
    stale.has_failed = false, stale.planned = 0;
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, n_memories);
    size_t most[MEMORIES] = { 0 };
    // In a long sequence there are more plans than are kept.
    bool is_long = pick(10) == 0;
    int topologies = 1 + pick(is_long ? 8 : 5), largest = 1 + pick(12), steps = is_long ? 60 : 14;
    bool has_failed = false;
    unsigned long long planned = 0;
    for (int step = 0; step < steps; step++) {
        struct graph_choice choice = { number, pick(topologies), question.edges ? pick(3) : 0, 1 + pick(largest) };
        // Each has its own, and ggml's graph has no addresses yet when the reference looks at it.
        struct built_graph built = build(choice), their_built = build(choice);
        struct ggml_cgraph * graph = built.graph, * their_graph = their_built.graph;
        const int * nodes = n_memories > 1 ? built.nodes : NULL, * leafs = n_memories > 1 ? built.leafs : NULL;
        size_t had[MEMORIES];
        int before[MEMORIES];
        for (int m = 0; m < n_memories; m++) before[m] = types[m]->made, had[m] = types[m]->alive;
        bool reserves = pick(3) > 0 || (has_failed && reserves_after_failure), allocates = !reserves || pick(2);
        unsigned long long edges = edges_of(graph);
        bool is_told = question.edges && !reserves && edges != planned;
        bool they = !(reserves || is_told) || their_reserve(&theirs, their_graph, nodes, leafs);
        bool they_fail = !they;
        if (they && allocates && !their_alloc(&theirs, their_graph)) they = false, they_fail = n_memories == 1;
        if (reserves || is_told || n_memories == 1) planned = edges;
        bool we = !reserves || ggml_gallocr_reserve_n(galloc, graph, nodes, leafs);
        if (we && allocates) {
            we = ggml_gallocr_alloc_graph(galloc, graph);
            if (!we && is_told && n_memories > 1) {
                // As ggml's scheduler does it.
                we = ggml_gallocr_reserve_n(galloc, graph, nodes, leafs) && ggml_gallocr_alloc_graph(galloc, graph);
            }
            EXPECT(!we || runs_well(graph));
        }
        if (they && !we) fail(number, step, 0, "ours fails", types[0]->alive, their_size(&theirs, 0));
        has_failed = they_fail;
        met.steps++, met.failures += they_fail, met.only_theirs += we && they_fail;
        if (question.edges) {
            met.other_edges += is_told;
            bool is_stale = stale_step(&stale, choice, reserves, allocates);
            for (int m = 0; m < n_memories && is_stale; m++) met.above_stale += types[m]->alive > their_size(&stale.theirs, m);
        }
        for (int m = 0; m < n_memories; m++) {
            size_t their_bytes = their_size(&theirs, m), our_bytes = ggml_gallocr_get_buffer_size(galloc, m);
            if (theirs.reference.memories[m].owner != m) {
                EXPECT(our_bytes == 0 && their_bytes == 0);
                continue;
            }
            // What ggml could not have counts as if it had.
            size_t asked = they_fail ? planned_size(&theirs.reference.memories[m]) : 0;
            if (asked < their_bytes) asked = their_bytes;
            if (asked > most[m]) most[m] = asked;
            bool made = types[m]->made != before[m];
            met.made += made, met.kept += !made, met.shrank += made && our_bytes < had[m];
            met.in_chunks += types[m]->buffers > 1, met.their_chunks += their_chunks(&theirs, m) > 1;
            met.smaller += our_bytes < their_bytes;
            EXPECT(our_bytes == types[m]->alive);
            if (made && our_bytes > asked) fail(number, step, m, "made anew", our_bytes, their_bytes);
            if (our_bytes > most[m]) fail(number, step, m, "more than ggml ever had", our_bytes, most[m]);
            if (question.exact && our_bytes != their_bytes) fail(number, step, m, "not as with ggml", our_bytes, their_bytes);
        }
        ggml_free(built.ctx), ggml_free(their_built.ctx);
    }
    ggml_gallocr_free(galloc);
    their_free(&theirs), their_free(&stale.theirs);
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

// That there was something to see in so many sequences: all that the law is about.
static void expect_all_kinds(struct question question) {
    EXPECT(met.failures > 0 && met.made > 0 && met.kept > 0 && met.shrank > 0 && met.in_chunks > 0 && met.their_chunks > 0);
    EXPECT(question.exact || met.smaller > 0);
    EXPECT(!question.edges || (met.other_edges > 0 && met.stale > 0));
#ifdef REAL_GGML
    EXPECT(!question.edges || met.spoilt > 0);
    EXPECT(fallbacks == 0);
#endif
}

int run(int argc, char ** argv) {
#ifdef REAL_GGML
    EXPECT(argc >= 3);
    printf("ggml %s: ", load_real(argv[1], argv[2]));
    argc -= 2, argv += 2;
#endif
    EXPECT(argc >= 3);
    counts = mock_counts();
    int sequences = atoi(argv[2]);
    struct question question = { strcmp(argv[1], "two") == 0 ? 2 : 1, false, false };
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "exact") == 0) question.exact = true;
        if (strcmp(argv[i], "edges") == 0) question.edges = true;
    }
    for (int number = 0; number < sequences; number++) sequence(number, question);
    printf("steps %d, ggml fails %d, only ggml fails %d, made anew %d, ", met.steps, met.failures, met.only_theirs, met.made);
    printf("made smaller %d, kept %d, in several chunks %d, ", met.shrank, met.kept, met.in_chunks);
    printf("in several chunks with ggml %d, smaller than with ggml %d", met.their_chunks, met.smaller);
    if (question.edges) {
        printf(", other edges %d, stale plans of ggml's %d, larger than with these %d", met.other_edges, met.stale, met.above_stale);
#ifdef REAL_GGML
        printf(", graphs spoilt by these %d", met.spoilt);
#endif
    }
    printf("\n");
    fflush(stdout);
    if (sequences >= 200) expect_all_kinds(question);
    figures();
    EXPECT(counts->buffers_alive == 0);
    return 0;
}
