// ggml's graph allocator as far as sizes go, written from a description of its behaviour: which chunks a graph takes, and
// when the buffers of a memory are made anew. It allocates nothing; a `reference_device` counts what it would have.
//
//   reserve    plan from empty; a memory with a chunk that has to grow gives all its buffers back, and then has one for
//              each chunk of the new plan, as large as that; a memory in which every chunk fits keeps what it has
//   alloc      the latest plan if counts fit, and the sizes of nodes and of what they read; else reserve with one memory, and
//              false with several
//   failure    the memory has no buffers, those before it the new ones, and those behind it the old ones
#pragma once

#include "model.h"

enum { CHUNKS = 16, BLOCKS = 256, MEMORIES = 2, TENSORS = 64 };

struct reference_device { size_t total, used; };

struct free_chunk { struct { size_t offset, size; } blocks[BLOCKS]; int n_blocks; size_t peak; };

struct reference_memory {
    ggml_backend_buffer_type_t type;
    // The first memory of this type, which has the buffers of all.
    int owner;
    struct reference_device * device;
    // The plan.
    struct free_chunk chunks[CHUNKS];
    int n_chunks;
    // The buffers.
    bool made;
    size_t sizes[CHUNKS];
};

struct tensor_state { struct ggml_tensor * tensor; int children, views, memory, chunk; size_t offset; bool owned; };

struct reference {
    struct reference_memory memories[MEMORIES];
    int n_memories;
    struct tensor_state states[4 * TENSORS];
    int n_states;
    // What the latest plan has room for; -1 nodes if there is none.
    int n_nodes, n_leafs;
    size_t rooms[TENSORS][1 + GGML_MAX_SRC], leaf_rooms[TENSORS];
};

static size_t padded(const struct reference_memory * memory, const struct ggml_tensor * tensor) {
    size_t size = ggml_backend_buft_get_alloc_size(memory->type, tensor), alignment = memory->type->alignment;
    return (size + alignment - 1) / alignment * alignment;
}

static struct tensor_state * find_state(struct reference * reference, struct ggml_tensor * tensor) {
    for (int i = 0; i < reference->n_states; i++) {
        if (reference->states[i].tensor == tensor) return &reference->states[i];
    }
    return NULL;
}

static struct tensor_state * state_of(struct reference * reference, struct ggml_tensor * tensor) {
    struct tensor_state * found = find_state(reference, tensor);
    if (found) return found;
    EXPECT(reference->n_states < 4 * TENSORS);
    struct tensor_state * state = &reference->states[reference->n_states++];
    memset(state, 0, sizeof *state);
    state->tensor = tensor;
    return state;
}

static bool is_external(const struct ggml_tensor * tensor) { return tensor->data || tensor->buffer; }

static void take_bytes(struct reference_memory * memory, size_t size, struct tensor_state * state) {
    int chunk = -1, block = -1;
    for (int c = 0; c < memory->n_chunks; c++) {
        struct free_chunk * it = &memory->chunks[c];
        size_t best = SIZE_MAX;
        for (int b = 0; b < it->n_blocks - 1; b++) {
            if (it->blocks[b].size >= size && it->blocks[b].size <= best) {
                chunk = c, block = b, best = it->blocks[b].size;
            }
        }
    }
    if (chunk < 0) {
        int64_t best = INT64_MIN;
        for (int c = 0; c < memory->n_chunks; c++) {
            struct free_chunk * it = &memory->chunks[c];
            if (it->n_blocks == 0 || it->blocks[it->n_blocks - 1].size < size) continue;
            int64_t spare = (int64_t) it->peak - (int64_t) it->blocks[it->n_blocks - 1].offset - (int64_t) size;
            if ((best < 0 && spare > best) || (spare >= 0 && spare < best)) {
                chunk = c, block = it->n_blocks - 1, best = spare;
            }
        }
    }
    if (chunk < 0) {
        EXPECT(memory->n_chunks < CHUNKS);
        chunk = memory->n_chunks++, block = 0;
        struct free_chunk * it = &memory->chunks[chunk];
        it->n_blocks = 1, it->peak = 0;
        it->blocks[0].offset = 0;
        it->blocks[0].size = size > memory->type->max_size ? size : memory->type->max_size;
        if (chunk == CHUNKS - 1) it->blocks[0].size = SIZE_MAX / 2;
    }
    struct free_chunk * it = &memory->chunks[chunk];
    state->chunk = chunk, state->offset = it->blocks[block].offset;
    it->blocks[block].offset += size, it->blocks[block].size -= size;
    if (it->blocks[block].size == 0) {
        memmove(&it->blocks[block], &it->blocks[block + 1], (it->n_blocks - block - 1) * sizeof it->blocks[0]);
        it->n_blocks--;
    }
    if (state->offset + size > it->peak) it->peak = state->offset + size;
}

static void free_bytes(struct reference_memory * memory, int chunk, size_t offset, size_t size) {
    struct free_chunk * it = &memory->chunks[chunk];
    for (int b = 0; b < it->n_blocks; b++) {
        if (it->blocks[b].offset + it->blocks[b].size == offset) {
            it->blocks[b].size += size;
            if (b + 1 < it->n_blocks && it->blocks[b + 1].offset == offset + size) {
                it->blocks[b].size += it->blocks[b + 1].size;
                memmove(&it->blocks[b + 1], &it->blocks[b + 2], (it->n_blocks - b - 2) * sizeof it->blocks[0]);
                it->n_blocks--;
            }
            return;
        }
        if (it->blocks[b].offset == offset + size) {
            it->blocks[b].offset = offset, it->blocks[b].size += size;
            if (b > 0 && it->blocks[b - 1].offset + it->blocks[b - 1].size == offset) {
                it->blocks[b - 1].size += it->blocks[b].size;
                memmove(&it->blocks[b], &it->blocks[b + 1], (it->n_blocks - b - 1) * sizeof it->blocks[0]);
                it->n_blocks--;
            }
            return;
        }
    }
    EXPECT(it->n_blocks < BLOCKS);
    int at = 0;
    while (at < it->n_blocks && it->blocks[at].offset < offset) at++;
    memmove(&it->blocks[at + 1], &it->blocks[at], (it->n_blocks - at) * sizeof it->blocks[0]);
    it->blocks[at].offset = offset, it->blocks[at].size = size;
    it->n_blocks++;
}

static bool runs_in_place(int op) { return op == GGML_OP_ADD || op == GGML_OP_MUL || op == GGML_OP_SCALE || op == GGML_OP_UNARY; }

static void give_memory(struct reference * reference, struct ggml_tensor * tensor, int memory) {
    struct tensor_state * state = state_of(reference, tensor);
    if (is_external(tensor) || state->owned || tensor->view_src) return;
    memory = reference->memories[memory].owner;
    state->owned = true;
    for (int j = 0; j < GGML_MAX_SRC && runs_in_place(tensor->op); j++) {
        struct ggml_tensor * source = tensor->src[j];
        if (!source) continue;
        struct tensor_state * old = state_of(reference, source);
        state = state_of(reference, tensor);
        bool alike = source->type == tensor->type && memcmp(source->ne, tensor->ne, sizeof source->ne) == 0
            && memcmp(source->nb, tensor->nb, sizeof source->nb) == 0;
        if (!old->owned || source->flags & GGML_TENSOR_FLAG_OUTPUT || !alike || old->children != 1 || old->views != 0) continue;
        state->memory = old->memory, state->chunk = old->chunk, state->offset = old->offset;
        old->owned = false;
        return;
    }
    state->memory = memory;
    take_bytes(&reference->memories[memory], padded(&reference->memories[memory], tensor), state);
}

static void free_tensor(struct reference * reference, struct tensor_state * state) {
    state->owned = false;
    if (state->tensor->flags & GGML_TENSOR_FLAG_OUTPUT) return;
    struct reference_memory * memory = &reference->memories[state->memory];
    free_bytes(memory, state->chunk, state->offset, padded(memory, state->tensor));
}

static size_t room_of(struct reference * reference, struct ggml_tensor * tensor) {
    if (!tensor || is_external(tensor) || tensor->view_src) return 0;
    struct tensor_state * state = find_state(reference, tensor);
    return ggml_backend_buft_get_alloc_size(reference->memories[state ? state->memory : 0].type, tensor);
}

static void reference_plan(struct reference * reference, struct ggml_cgraph * graph, const int * nodes, const int * leafs) {
    reference->n_states = 0;
    for (int m = 0; m < reference->n_memories; m++) reference->memories[m].n_chunks = 0;
    for (int i = 0; i < graph->n_leafs; i++) give_memory(reference, graph->leafs[i], leafs ? leafs[i] : 0);
    for (int i = 0; i < graph->n_nodes; i++) {
        struct ggml_tensor * node = graph->nodes[i];
        if (node->view_src && node->op != GGML_OP_NONE) state_of(reference, node->view_src)->views++;
        if (node->flags & GGML_TENSOR_FLAG_INPUT) give_memory(reference, node, nodes ? nodes[i] : 0);
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (!node->src[j]) continue;
            state_of(reference, node->src[j])->children++;
            if (node->src[j]->flags & GGML_TENSOR_FLAG_INPUT) give_memory(reference, node->src[j], nodes ? nodes[i] : 0);
        }
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        struct ggml_tensor * node = graph->nodes[i];
        int memory = nodes ? nodes[i] : 0;
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (node->src[j]) give_memory(reference, node->src[j], memory);
        }
        give_memory(reference, node, memory);
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            struct ggml_tensor * source = node->src[j];
            if (!source) continue;
            struct tensor_state * state = state_of(reference, source);
            state->children--;
            if (state->children != 0 || state->views != 0) continue;
            if (source->view_src) {
                struct tensor_state * root = state_of(reference, source->view_src);
                root->views--;
                if (root->views == 0 && root->children == 0 && root->owned) free_tensor(reference, root);
            } else if (state->owned) {
                free_tensor(reference, state);
            }
        }
    }
    reference->n_nodes = graph->n_nodes, reference->n_leafs = graph->n_leafs;
    for (int i = 0; i < graph->n_leafs; i++) reference->leaf_rooms[i] = room_of(reference, graph->leafs[i]);
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = -1; j < GGML_MAX_SRC; j++) {
            reference->rooms[i][1 + j] = room_of(reference, j < 0 ? graph->nodes[i] : graph->nodes[i]->src[j]);
        }
    }
}

static size_t planned_size(const struct reference_memory * memory) {
    size_t size = 0;
    for (int c = 0; c < memory->n_chunks; c++) size += memory->chunks[c].peak;
    return size;
}

static size_t reference_size(const struct reference_memory * memory) {
    size_t size = 0;
    for (int c = 0; c < CHUNKS; c++) size += memory->sizes[c];
    return size;
}

static void reference_release(struct reference_memory * memory) {
    memory->device->used -= reference_size(memory);
    memset(memory->sizes, 0, sizeof memory->sizes);
    memory->made = false;
}

static bool reference_reserve(struct reference * reference, struct ggml_cgraph * graph, const int * nodes, const int * leafs) {
    reference_plan(reference, graph, nodes, leafs);
    for (int m = 0; m < reference->n_memories; m++) {
        struct reference_memory * memory = &reference->memories[m];
        if (memory->owner != m) continue;
        bool again = !memory->made;
        for (int c = 0; c < memory->n_chunks; c++) again |= memory->chunks[c].peak > memory->sizes[c];
        if (!again) continue;
        reference_release(memory);
        for (int c = 0; c < memory->n_chunks; c++) {
            size_t size = memory->chunks[c].peak;
            if (size > memory->type->max_size || memory->device->used + size > memory->device->total) {
                reference_release(memory);
                reference->n_nodes = -1;
                return false;
            }
            memory->device->used += memory->sizes[c] = size;
        }
        memory->made = true;
    }
    return true;
}

static bool reference_fits(struct reference * reference, struct ggml_cgraph * graph) {
    if (graph->n_nodes != reference->n_nodes || graph->n_leafs != reference->n_leafs) return false;
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = -1; j < GGML_MAX_SRC; j++) {
            if (room_of(reference, j < 0 ? graph->nodes[i] : graph->nodes[i]->src[j]) > reference->rooms[i][1 + j]) return false;
        }
    }
    return true;
}

// Whether a leaf has outgrown the plan. ggml does not look at those that no node reads, and overruns what it has planned for them.
static bool reference_overruns(struct reference * reference, struct ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_leafs; i++) {
        if (room_of(reference, graph->leafs[i]) > reference->leaf_rooms[i]) return true;
    }
    return false;
}

static bool reference_alloc(struct reference * reference, struct ggml_cgraph * graph) {
    if (reference_fits(reference, graph)) return true;
    return reference->n_memories == 1 && reference_reserve(reference, graph, NULL, NULL);
}
