// ggml's side of a comparison: what ours is held to. Compiled for the tests it is the reference alone, which knows sizes and no
// addresses. With REAL_GGML it is a real ggml's own allocator, and the reference is held to that after every call.
#pragma once

#include "reference.h"

struct theirs {
    struct reference reference;
    struct reference_device devices[2];
#ifdef REAL_GGML
    ggml_gallocr_t galloc;
    ggml_backend_buffer_type_t types[MEMORIES];
    struct mock_device real_devices[2];
#endif
};

#ifdef REAL_GGML

// After a reserve that has failed, its alloc would use buffers that are not there.
static const bool reserves_after_failure = true;

static bool agree(struct theirs * theirs, bool they, bool reference) {
    for (int m = 0; m < theirs->reference.n_memories; m++) {
        size_t size = ggmls.get_buffer_size(theirs->galloc, m), expected = reference_size(&theirs->reference.memories[m]);
        bool is_owner = theirs->reference.memories[m].owner == m;
        if (size != expected || (is_owner && size != theirs->types[m]->alive)) {
            fprintf(stderr, "memory %d: ggml has %zu bytes (%zu alive), and the reference %zu\n", m, size, theirs->types[m]->alive, expected);
            exit(1);
        }
    }
    EXPECT(they == reference);
    return they;
}

#else
static const bool reserves_after_failure = false;
#endif

// With limits as those of ours. `which` is the first of the stand-in's buffer types that are this side's.
static void their_new(struct theirs * theirs, ggml_backend_buffer_type_t * types, int n_memories, int which) {
    memset(theirs, 0, sizeof *theirs);
    struct reference * reference = &theirs->reference;
    reference->n_memories = n_memories, reference->n_nodes = -1;
    for (int m = 0; m < n_memories; m++) {
        int device = m > 0 && types[m]->device != types[0]->device;
        theirs->devices[device].total = types[m]->device->total;
        reference->memories[m].type = types[m];
        reference->memories[m].owner = m > 0 && types[m] == types[0] ? 0 : m;
        reference->memories[m].device = &theirs->devices[device];
#ifdef REAL_GGML
        theirs->real_devices[device].total = types[m]->device->total;
        theirs->types[m] = mock_type(which + (int) (types[m] - mock_type(0)));
        theirs->types[m]->max_size = types[m]->max_size;
        theirs->types[m]->device = &theirs->real_devices[device];
#endif
    }
#ifdef REAL_GGML
    theirs->galloc = ggmls.new_n(theirs->types, n_memories);
#else
    (void) which;
#endif
}

static bool their_reserve(struct theirs * theirs, struct ggml_cgraph * graph, const int * nodes, const int * leafs) {
    bool answer = reference_reserve(&theirs->reference, graph, nodes, leafs);
#ifdef REAL_GGML
    answer = agree(theirs, ggmls.reserve_n(theirs->galloc, graph, nodes, leafs), answer);
#endif
    return answer;
}

static bool their_alloc(struct theirs * theirs, struct ggml_cgraph * graph) {
    bool answer = reference_alloc(&theirs->reference, graph);
#ifdef REAL_GGML
    answer = agree(theirs, ggmls.alloc_graph(theirs->galloc, graph), answer);
#endif
    return answer;
}

static size_t their_size(const struct theirs * theirs, int memory) { return reference_size(&theirs->reference.memories[memory]); }

static int their_chunks(const struct theirs * theirs, int memory) {
    int chunks = 0;
    for (int c = 0; c < CHUNKS; c++) chunks += theirs->reference.memories[memory].sizes[c] > 0;
    return chunks;
}

static void their_free(struct theirs * theirs) {
#ifdef REAL_GGML
    ggmls.free(theirs->galloc);
    for (int m = 0; m < theirs->reference.n_memories; m++) {
        EXPECT(theirs->types[m]->alive == 0);
        theirs->types[m]->max_size = SIZE_MAX, theirs->types[m]->device = NULL;
    }
#else
    (void) theirs;
#endif
}
