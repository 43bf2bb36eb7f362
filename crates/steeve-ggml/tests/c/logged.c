// What is wrong goes to the program's log callback, with its level. With an argument: the user wants it on stderr.
#include "model.h"

static char said[4096];
static int levels[64], count;

static void note(int level, const char * text, void * user_data) {
    EXPECT(user_data == said && count < 64);
    levels[count++] = level;
    strncat(said, text, sizeof said - strlen(said) - 1);
}

int run(int argc, char ** argv) {
    (void) argv;
    struct ggml_context * ctx = context();
    ggml_log_set(note, said);
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    for (int round = 0; round < 5; round++) {
        struct ggml_cgraph * odd = gapped(ctx);
        odd->nodes[round % 3]->type = GGML_TYPE_ODD;
        EXPECT(ggml_gallocr_alloc_graph(galloc, odd) && allocates_well(galloc, gapped(ctx)));
    }
    if (argc > 1) {
        EXPECT(count == 0);
        ggml_gallocr_free(galloc);
        ggml_free(ctx);
        return 0;
    }
    EXPECT(strcmp(said, "steeve: ggml's own allocator is used for this graph: tensor 1 (): unknown data type 36\n") == 0);
    EXPECT(count == 1 && levels[0] == 3);
    ggml_gallocr_free(galloc);
    // As ggml's own would say it.
    said[0] = 0;
    galloc = ggml_gallocr_new(mock_type(0));
    mock_fail_after(0);
    EXPECT(!ggml_gallocr_reserve(galloc, gapped(ctx)) && count == 2 && levels[1] == 4);
    EXPECT(strcmp(said, "steeve: failed to allocate CPU buffer of size 640\n") == 0);
    ggml_gallocr_free(galloc);
    said[0] = 0;
    mock_type(2)->max_size = 512;
    mock_fail_after(1);
    galloc = ggml_gallocr_new(mock_type(2));
    EXPECT(!ggml_gallocr_reserve(galloc, gapped(ctx)) && count == 3);
    EXPECT(strncmp(said, "steeve: failed to allocate GPU buffer of size ", 46) == 0 && strstr(said, " (buffer 2 of "));
    ggml_gallocr_free(galloc);
    mock_fail_after(-1);
    ggml_free(ctx);
    return 0;
}
