// Linked with the static library in place of ggml's own object file.
#define STEEVE_GGML_WHOLE
#include "steeve_ggml.h"

#include "model.h"

static void tensors_stand_behind_each_other(void) {
    struct ggml_context * ctx = context();
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(mock_type(1), 1000);
    struct ggml_tallocr talloc = ggml_tallocr_new(buffer);
    char * base = ggml_backend_buffer_get_base(buffer);
    EXPECT(talloc.buffer == buffer && talloc.base == base && talloc.alignment == 64 && talloc.offset == 0);
    struct ggml_tensor * a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 10, 1);
    struct ggml_tensor * b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 100, 1);
    struct ggml_tensor * c = ggml_set_name(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 140, 1), "the last");
    struct ggml_tensor * d = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 0, 1);
    EXPECT(ggml_tallocr_alloc(&talloc, a) == 0 && a->data == base && a->buffer == buffer && talloc.offset == 64);
    EXPECT(ggml_tallocr_alloc(&talloc, b) == 0 && b->data == base + 64 && talloc.offset == 512);
    // There is no room: nothing changes, and what is smaller still fits.
    EXPECT(ggml_tallocr_alloc(&talloc, c) == -2 && !c->data && !c->buffer && talloc.offset == 512);
    EXPECT(ggml_tallocr_alloc(&talloc, d) == 0 && d->data == base + 512 && talloc.offset == 512);
    // Whoever has memory keeps it.
    EXPECT(ggml_tallocr_alloc(&talloc, a) != 0 && a->data == base && talloc.offset == 512);
    EXPECT(ggml_tallocr_alloc(NULL, a) != 0 && ggml_tallocr_alloc(&talloc, NULL) != 0);
    c->ne[0] = INT64_MAX, c->nb[0] = 1;
    EXPECT(ggml_tallocr_alloc(&talloc, c) == -2 && talloc.offset == 512);
    ggml_backend_buffer_free(buffer);
    // A buffer that does not begin aligned is used from its first aligned byte on.
    mock_type(3)->alignment = 16;
    buffer = ggml_backend_buft_alloc_buffer(mock_type(3), 4096);
    mock_type(3)->alignment = 1024;
    talloc = ggml_tallocr_new(buffer);
    EXPECT(((uintptr_t) talloc.base + talloc.offset) % 1024 == 0 && talloc.offset < 1024);
    mock_type(3)->alignment = 16;
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static struct ggml_context * some_tensors(struct ggml_tensor ** all) {
    struct ggml_context * ctx = context();
    all[0] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 16, 1);
    all[1] = ggml_view_1d(ctx, all[0], 4, 16);
    all[2] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 1);
    all[3] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 5, 1);
    all[4] = ggml_view_1d(ctx, all[2], 4, 16);
    all[5] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 0, 1);
    return ctx;
}

static void all_tensors_of_a_context(size_t max_size, size_t buffers, size_t total) {
    struct ggml_tensor * all[6];
    struct ggml_context * ctx = some_tensors(all);
    struct mock_counts * counts = mock_counts();
    mock_type(0)->max_size = max_size;
    EXPECT(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, mock_type(0)) == total);
    EXPECT(counts->buffers_alive == 0);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, mock_type(0));
    EXPECT(buffer && ggml_backend_buffer_get_size(buffer) == total);
    EXPECT((size_t) counts->buffers_alive == (buffers == 1 ? 1 : buffers + 1));
    for (int i = 0; i < 6; i++) EXPECT(all[i]->data && all[i]->buffer);
    EXPECT((char *) all[1]->data == (char *) all[0]->data + 16 && all[1]->buffer == all[0]->buffer);
    EXPECT((char *) all[4]->data == (char *) all[2]->data + 16 && all[4]->buffer == all[2]->buffer);
    EXPECT(buffers > 1 || (char *) all[3]->data == (char *) all[0]->data + 64 + 256);
    // All have memory: there is nothing to do.
    EXPECT(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, mock_type(0)) == 0);
    EXPECT(!ggml_backend_alloc_ctx_tensors_from_buft(ctx, mock_type(0)));
    ggml_backend_buffer_free(buffer);
    EXPECT(counts->buffers_alive == 0);
    ggml_free(ctx);
    // A failure takes everything back.
    for (size_t fail = 0; fail < buffers; fail++) {
        ctx = some_tensors(all);
        mock_fail_after((int) fail);
        EXPECT(!ggml_backend_alloc_ctx_tensors(ctx, NULL) && counts->buffers_alive == 0);
        for (int i = 0; i < 6; i++) EXPECT(!all[i]->data && !all[i]->buffer);
        mock_fail_after(-1);
        buffer = ggml_backend_alloc_ctx_tensors(ctx, NULL);
        EXPECT(buffer && all[2]->data);
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    mock_type(0)->max_size = SIZE_MAX;
}

static void contexts_with_nothing_to_do(void) {
    struct ggml_context * ctx = context();
    EXPECT(!ggml_backend_alloc_ctx_tensors(ctx, NULL) && !ggml_backend_alloc_ctx_tensors_from_buft(NULL, mock_type(0)));
    ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 0, 1);
    EXPECT(!ggml_backend_alloc_ctx_tensors(ctx, NULL));
    // More bytes than can be counted.
    ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 1)->nb[0] = (SIZE_MAX - 20) / 7;
    EXPECT(!ggml_backend_alloc_ctx_tensors(ctx, NULL) && ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, mock_type(0)) == 0);
    // A view of somebody who has no memory.
    struct ggml_context * other = context();
    struct ggml_tensor * view = ggml_view_1d(other, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 1), 4, 0);
    struct ggml_tensor * more = ggml_new_tensor_2d(other, GGML_TYPE_F32, 8, 1);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(other, NULL);
    EXPECT(buffer && more->data && !view->data && !view->buffer);
    ggml_backend_buffer_free(buffer);
    ggml_free(other);
    ggml_free(ctx);
}

static void the_graph_allocator_is_there(void) {
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(allocates_well(galloc, gapped(ctx)) && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    struct ggml_cgraph * odd = gapped(ctx);
    odd->nodes[1]->type = GGML_TYPE_ODD;
    EXPECT(!ggml_gallocr_alloc_graph(galloc, odd));
    EXPECT(allocates_well(galloc, gapped(ctx)) && ggml_gallocr_get_buffer_size(galloc, 0) == 640);
    ggml_gallocr_free(galloc);
    ggml_gallocr_free(NULL);
    EXPECT(ggml_op_can_inplace(GGML_OP_ADD) && ggml_op_can_inplace(GGML_OP_UNARY) && !ggml_op_can_inplace(GGML_OP_MUL_MAT));
    EXPECT(!ggml_op_can_inplace(GGML_OP_FANCY) && !ggml_op_can_inplace(-1) && !ggml_op_can_inplace(GGML_OP_COUNT));
    ggml_free(ctx);
}

int run(int argc, char ** argv) {
    (void) argc, (void) argv;
    tensors_stand_behind_each_other();
    all_tensors_of_a_context(SIZE_MAX, 1, 64 + 256 + 32);
    all_tensors_of_a_context(320, 2, 64 + 256 + 32);
    all_tensors_of_a_context(260, 3, 64 + 256 + 32);
    all_tensors_of_a_context(256, 3, 64 + 256 + 32);
    contexts_with_nothing_to_do();
    the_graph_allocator_is_there();
    EXPECT(mock_counts()->buffers_alive == 0 && mock_counts()->contexts_alive == 0);
    return 0;
}
