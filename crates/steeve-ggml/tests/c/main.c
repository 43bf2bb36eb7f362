// Runs a program that is linked with ggml itself.
int run(int argc, char ** argv);

int main(int argc, char ** argv) { return run(argc, argv); }
