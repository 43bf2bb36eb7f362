// A process forks while its threads are inside, and the child allocates: argument, how often.
#include "model.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, SECONDS = 20 };

static atomic_bool over;

// Everything that there is, on a handle of its own.
static void use(struct ggml_context * ctx, bool odd_too) {
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    EXPECT(galloc);
    for (int round = 0; round < 3; round++) {
        struct ggml_cgraph * graph = gapped(ctx);
        bool odd = odd_too && round == 1;
        if (odd) graph->nodes[1]->type = GGML_TYPE_ODD;
        size_t size = 0;
        ggml_gallocr_reserve_n_size(galloc, graph, NULL, NULL, &size);
        EXPECT(ggml_gallocr_reserve(galloc, graph) && ggml_gallocr_alloc_graph(galloc, graph));
        EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == size && size == (odd ? 1824u : 640u));
        EXPECT(odd || runs_well(graph));
    }
    ggml_gallocr_free(galloc);
}

static void * busy(void * unused) {
    (void) unused;
    struct ggml_context * ctx = context();
    ggml_gallocr_t galloc = ggml_gallocr_new(mock_type(0));
    struct ggml_cgraph * graph = gapped(ctx);
    EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
    while (!atomic_load(&over)) {
        for (int i = 0; i < 200; i++) EXPECT(ggml_gallocr_get_buffer_size(galloc, 0) == 640);
        EXPECT(ggml_gallocr_alloc_graph(galloc, graph));
        struct ggml_context * own = context();
        use(own, true);
        ggml_free(own);
    }
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

int run(int argc, char ** argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 300, hung = 0;
    struct ggml_context * ctx = context();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    double start = now();
    for (int i = 0; i < forks && hung == 0; i++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            use(ctx, true);
            _exit(0);
        }
        int status = 0;
        double limit = now() + SECONDS;
        while (waitpid(child, &status, WNOHANG) == 0) {
            if (now() > limit) {
                hung++;
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                break;
            }
            usleep(200);
        }
        EXPECT(hung || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    fprintf(stderr, "%d forks in %.1f s, %d hung\n", forks, now() - start, hung);
    ggml_free(ctx);
    return hung;
}
