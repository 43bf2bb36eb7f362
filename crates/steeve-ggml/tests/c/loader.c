// Opens libraries that are linked with ggml, as Node and Python do, and runs each: loader local|global|reload LIBRARY... [-- ARGS]
// With `reload` each is closed before the next is opened.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char ** argv) {
    int mode = RTLD_NOW | (strcmp(argv[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL);
    int end = 2;
    while (end < argc && strcmp(argv[end], "--") != 0) end++;
    int (*runs[8])(int, char **);
    for (int i = 2; i < end && strcmp(argv[1], "reload") == 0; i++) {
        void * library = dlopen(argv[i], mode);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        *(void **) &runs[0] = dlsym(library, "run");
        int status = runs[0](argc - end, argv + end);
        if (status) return status;
        dlclose(library);
        if (i == end - 1) return 0;
    }
    // All are loaded before the first runs.
    for (int i = 2; i < end; i++) {
        void * library = dlopen(argv[i], mode);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        *(void **) &runs[i] = dlsym(library, "run");
    }
    for (int i = 2; i < end; i++) {
        int status = runs[i](argc - end, argv + end);
        if (status) return status;
    }
    return 0;
}
