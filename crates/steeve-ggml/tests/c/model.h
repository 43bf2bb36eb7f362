// What the test programs share: expectations, graphs, and a checker that runs a graph on tags.
//
// The checker gives each root a second, private piece of memory. It executes the nodes in order: every element that a node
// reads must have the same tag at its assigned address and in the private piece, and then the node writes fresh tags to
// both. Whoever was given bytes that somebody else still needs is caught when he reads.
#pragma once

#include "ggml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(x) do { if (!(x)) { fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)
#define UNUSED __attribute__((unused)) static

static unsigned long long seed = 88172645463325252ull;

UNUSED unsigned pick(unsigned below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned) (seed >> 20) % below;
}

UNUSED struct ggml_context * context(void) {
    // The test's own ggml takes as much as it needs.
    struct ggml_init_params params = { 1 << 17, NULL, true };
    return ggml_init(params);
}

UNUSED struct ggml_tensor * leaf(struct ggml_cgraph * graph, struct ggml_tensor * tensor) {
    return graph->leafs[graph->n_leafs++] = tensor;
}

UNUSED struct ggml_tensor * node(struct ggml_cgraph * graph, struct ggml_tensor * tensor) {
    return graph->nodes[graph->n_nodes++] = tensor;
}

UNUSED struct ggml_tensor * input(struct ggml_context * ctx, struct ggml_cgraph * graph, int64_t ne0) {
    struct ggml_tensor * tensor = leaf(graph, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne0, 1));
    ggml_set_input(tensor);
    return tensor;
}

UNUSED struct ggml_tensor * op(struct ggml_context * ctx, struct ggml_cgraph * graph, int op, int64_t ne0, struct ggml_tensor * a, struct ggml_tensor * b) {
    return node(graph, mock_tensor(ctx, GGML_TYPE_F32, op, ne0, 1, a, b));
}

// A copy of `a` into `b`, which is written: the result is a view of b's root.
UNUSED struct ggml_tensor * copy_into(struct ggml_context * ctx, struct ggml_cgraph * graph, struct ggml_tensor * a, struct ggml_tensor * b) {
    struct ggml_tensor * tensor = ggml_view_1d(ctx, b, b->ne[0], 0);
    tensor->op = GGML_OP_CPY;
    tensor->src[0] = a;
    tensor->src[1] = b;
    return node(graph, tensor);
}

// the checker

struct root { struct ggml_tensor * tensor; uint32_t * tags; struct root * next; };
struct checker { struct root * roots[4096]; uint32_t tag; };

static struct ggml_tensor * root_of(struct ggml_tensor * tensor) { return tensor->view_src ? tensor->view_src : tensor; }

static struct root * find_root(struct checker * checker, struct ggml_tensor * tensor) {
    tensor = root_of(tensor);
    struct root ** slot = &checker->roots[(uintptr_t) tensor / 16 % 4096];
    while (*slot && (*slot)->tensor != tensor) slot = &(*slot)->next;
    if (!*slot) {
        *slot = calloc(1, sizeof **slot);
        (*slot)->tensor = tensor;
        (*slot)->tags = calloc(1, mock_nbytes(tensor) + 4);
    }
    return *slot;
}

// What the caller writes before the run.
static void fills(struct checker * checker, struct ggml_tensor * tensor) {
    struct root * root = find_root(checker, tensor);
    for (size_t i = 0; root->tensor->data && i < mock_nbytes(root->tensor) / 4; i++) {
        root->tags[i] = ((uint32_t *) root->tensor->data)[i] = ++checker->tag;
    }
}

// Whether the tensor's elements are at its address what they should be. All are f32 here.
static bool reads_well(struct checker * checker, struct ggml_tensor * tensor) {
    struct root * root = find_root(checker, tensor);
    for (int64_t i = 0; i < tensor->ne[0]; i++) {
        uint32_t here, there;
        memcpy(&here, (char *) tensor->data + i * tensor->nb[0], 4);
        memcpy(&there, (char *) root->tags + (tensor->view_src ? tensor->view_offs : 0) + i * tensor->nb[0], 4);
        if (here != there) return false;
    }
    return true;
}

static void writes(struct checker * checker, struct ggml_tensor * tensor) {
    struct root * root = find_root(checker, tensor);
    for (int64_t i = 0; i < tensor->ne[0]; i++) {
        uint32_t tag = ++checker->tag;
        memcpy((char *) tensor->data + i * tensor->nb[0], &tag, 4);
        memcpy((char *) root->tags + (tensor->view_src ? tensor->view_offs : 0) + i * tensor->nb[0], &tag, 4);
    }
}

// Whether a node may write where it stands: over nobody it reads, unless both have the same elements at the same places and
// the operation takes them one by one.
static bool may_write(struct ggml_tensor * tensor) {
    bool one_by_one = tensor->op == GGML_OP_ADD || tensor->op == GGML_OP_MUL || tensor->op == GGML_OP_UNARY || tensor->op == GGML_OP_GLU;
    for (int j = 0; j < GGML_MAX_SRC && !tensor->view_src; j++) {
        struct ggml_tensor * source = tensor->src[j] == tensor ? NULL : tensor->src[j];
        char * start = tensor->data, * other = source ? source->data : NULL;
        if (!source || other + mock_nbytes(source) <= start || start + mock_nbytes(tensor) <= other) continue;
        bool same = start == other && source->ne[0] == tensor->ne[0] && source->nb[0] == tensor->nb[0];
        if (!one_by_one || !same) return false;
    }
    return true;
}

// Whether the graph computes what it should where its tensors are; what is wrong goes to `report`, which may be NULL.
UNUSED bool is_computed(struct ggml_cgraph * graph, FILE * report) {
    struct checker * checker = calloc(1, sizeof *checker);
    bool well = true;
    for (int i = 0; i < graph->n_leafs && well; i++) {
        struct ggml_tensor * root = root_of(graph->leafs[i]);
        if (!root->data && mock_nbytes(root)) well = false;
        fills(checker, root);
    }
    // Inputs, and constants that are in no list.
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            struct ggml_tensor * source = graph->nodes[i]->src[j];
            if (source && (root_of(source)->op == GGML_OP_NONE || root_of(source)->flags & GGML_TENSOR_FLAG_INPUT)) {
                fills(checker, source);
            }
        }
    }
    for (int i = 0; i < graph->n_nodes && well; i++) {
        struct ggml_tensor * tensor = graph->nodes[i];
        if (!tensor->data && mock_nbytes(tensor)) {
            if (report) fprintf(report, "node %d has no address\n", i);
            well = false;
            break;
        }
        if (tensor->view_src && (char *) tensor->data != (char *) tensor->view_src->data + tensor->view_offs) {
            if (report) fprintf(report, "node %d is a view at the wrong place\n", i);
            well = false;
        }
        if (tensor->op == GGML_OP_NONE || tensor->op == GGML_OP_VIEW || tensor->op == GGML_OP_RESHAPE) continue;
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            // A copy does not read its destination, which may be itself.
            if (tensor->src[j] == tensor && tensor->op == GGML_OP_CPY) continue;
            if (tensor->src[j] && !reads_well(checker, tensor->src[j])) {
                if (report) fprintf(report, "node %d reads something else in slot %d\n", i, j);
                well = false;
            }
        }
        if (!may_write(tensor)) {
            if (report) fprintf(report, "node %d writes over what it reads\n", i);
            well = false;
        }
        writes(checker, tensor);
    }
    // What is an output or was never read is still there.
    for (int i = 0; i < graph->n_nodes && well; i++) {
        struct ggml_tensor * tensor = graph->nodes[i];
        bool kept = tensor->op != GGML_OP_NONE;
        for (int k = 0; k < graph->n_nodes && !(tensor->flags & GGML_TENSOR_FLAG_OUTPUT); k++) {
            for (int j = 0; j < GGML_MAX_SRC; j++) {
                struct ggml_tensor * source = graph->nodes[k]->src[j];
                kept = kept && source != tensor;
            }
            kept = kept && !(graph->nodes[k]->op != GGML_OP_NONE && graph->nodes[k]->view_src == tensor);
        }
        if (kept && !reads_well(checker, tensor)) {
            if (report) fprintf(report, "node %d did not survive\n", i);
            well = false;
        }
    }
    for (int i = 0; i < 4096; i++) {
        for (struct root * root = checker->roots[i], * next; root; root = next) {
            next = root->next;
            free(root->tags);
            free(root);
        }
    }
    free(checker);
    return well;
}

UNUSED bool runs_well(struct ggml_cgraph * graph) { return is_computed(graph, stderr); }

// Makes a graph's tensors unplaced again, as a program that builds its graph anew. External ones stay.
UNUSED void unplace(struct ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes + graph->n_leafs; i++) {
        struct ggml_tensor * tensor = i < graph->n_nodes ? graph->nodes[i] : graph->leafs[i - graph->n_nodes];
        for (int j = -1; j < GGML_MAX_SRC; j++) {
            struct ggml_tensor * it = j < 0 ? tensor : tensor->src[j];
            if (it && it->buffer) it->data = it->buffer = NULL;
            if (it && it->view_src && it->view_src->buffer) it->view_src->data = it->view_src->buffer = NULL;
        }
    }
}

UNUSED bool allocates_well(ggml_gallocr_t galloc, struct ggml_cgraph * graph) {
    return ggml_gallocr_alloc_graph(galloc, graph) && runs_well(graph);
}

// A small graph whose gaps are always too small for ggml's free list: 896 bytes as ggml does it, 640 at best.
UNUSED struct ggml_cgraph * gapped(struct ggml_context * ctx) {
    struct ggml_cgraph * graph = mock_graph(ctx, 16);
    struct ggml_tensor * x = input(ctx, graph, 32);
    struct ggml_tensor * a = op(ctx, graph, GGML_OP_MUL_MAT, 32, x, NULL);
    struct ggml_tensor * b = op(ctx, graph, GGML_OP_MUL_MAT, 64, a, NULL);
    struct ggml_tensor * c = op(ctx, graph, GGML_OP_MUL_MAT, 96, b, NULL);
    ggml_set_output(op(ctx, graph, GGML_OP_MUL_MAT, 8, c, NULL));
    return graph;
}

int run(int argc, char ** argv);
