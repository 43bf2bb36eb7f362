// logits MODEL CASES [WHAT=VALUE ...]: what a model computes with libllama, so that it can be compared to the bit.
//
// CASES are micro-batch/flash attention (on, off)/length of the prompt, with commas between. For each, on the output:
//
//   CASE prompt HASH            the logits behind the prompt, given at once: several micro-batches, one row of logits
//   CASE batch N HASH           the same in batches of one micro-batch each, with a row of logits behind each
//   CASE tokens HASH ID ...     the logits behind all of the tokens that follow, and the tokens, at temperature 0
//   CASE speed PROMPT TOKENS    tokens per second, medians, only with repeat=
//
// WHAT: backends=FOLDER has ggml's backends, if they are plug-ins; plugin=FILE, one more; rpc=HOST:PORT,... are remote devices, which
// are then the only ones; layers=N on devices (all); context=N (4096); tokens=N behind each prompt (16); batches=no leaves
// out the second kind of line; repeat=N prompts, timed (0); end=PID is killed in the middle of the tokens.
//
// logits serve PORTFILE [backends=FOLDER plugin=FILE]: a remote device on a free port of loopback, which is written to a file.

#include "ggml-backend.h"
#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

using settings = std::map<std::string, std::string>;

[[noreturn]] static void fail(const std::string & why) {
    fprintf(stderr, "logits: %s\n", why.c_str());
    exit(1);
}

static std::string get(const settings & all, const char * key, const char * otherwise) {
    auto found = all.find(key);
    return found == all.end() ? otherwise : found->second;
}

static int number(const settings & all, const char * key, const char * otherwise) {
    return atoi(get(all, key, otherwise).c_str());
}

static std::vector<std::string> split(const std::string & text, char at) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = std::min(text.find(at, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

static void load_backends(const settings & all) {
    std::string folder = get(all, "backends", "");
    if (!folder.empty()) {
        ggml_backend_load_all_from_path(folder.c_str());
    }
    std::string plugin = get(all, "plugin", "");
    if (!plugin.empty() && !ggml_backend_load(plugin.c_str())) {
        fail("ggml can't load " + plugin);
    }
}

static void * rpc_function(const char * name) {
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    void * found = rpc ? ggml_backend_reg_get_proc_address(rpc, name) : nullptr;
    if (!found) {
        fail(std::string("there is no ") + name);
    }
    return found;
}

static sockaddr_in loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t) port);
    return address;
}

static int free_port() {
    int one = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (one < 0 || bind(one, (sockaddr *) &address, size) != 0 || getsockname(one, (sockaddr *) &address, &size) != 0) {
        fail("there is no free port");
    }
    close(one);
    return ntohs(address.sin_port);
}

static int serve(const std::string & file, const settings & all) {
    // It ends with whoever has started it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load_backends(all);
    auto start = (void (*)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *)) rpc_function("ggml_backend_rpc_start_server");
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device) {
        fail("there is no processor");
    }
    std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
    FILE * out = fopen((file + ".part").c_str(), "w");
    if (!out || fprintf(out, "%s\n", endpoint.c_str()) < 0 || fclose(out) != 0 || rename((file + ".part").c_str(), file.c_str()) != 0) {
        fail("can't write " + file);
    }
    start(endpoint.c_str(), nullptr, 1, 1, &device);
    fail("the server has ended");
}

// The port of a server is known before it listens.
static void wait_for(const std::string & endpoint) {
    int port = atoi(endpoint.substr(endpoint.find(':') + 1).c_str());
    for (int attempt = 0; attempt < 200; attempt++) {
        int one = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address = loopback(port);
        bool there = one >= 0 && connect(one, (sockaddr *) &address, sizeof address) == 0;
        close(one);
        if (there) {
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    fail("nobody answers at " + endpoint);
}

static std::vector<ggml_backend_dev_t> remote(const std::string & endpoints) {
    auto add = (ggml_backend_reg_t (*)(const char *)) rpc_function("ggml_backend_rpc_add_server");
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string & endpoint : split(endpoints, ',')) {
        wait_for(endpoint);
        ggml_backend_reg_t server = add(endpoint.c_str());
        if (!server) {
            fail("no server at " + endpoint);
        }
        ggml_backend_register(server);
        for (size_t i = 0; i < ggml_backend_reg_dev_count(server); i++) {
            devices.push_back(ggml_backend_reg_dev_get(server, i));
        }
    }
    devices.push_back(nullptr);
    return devices;
}

// FNV-1a over the bits of numbers.
struct hash {
    uint64_t value = 0xcbf29ce484222325;
    void add(const float * numbers, int count) {
        if (!numbers) {
            fail("there are no logits");
        }
        const auto * bytes = (const unsigned char *) numbers;
        for (size_t i = 0; i < (size_t) count * sizeof(float); i++) {
            value = (value ^ bytes[i]) * 0x100000001b3;
        }
    }
};

static std::vector<llama_token> prompt_of(const llama_vocab * vocab, int length) {
    std::vector<llama_token> tokens;
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
        uint32_t state = 1;
        for (int i = 0; i < length; i++) {
            state = state * 1664525 + 1013904223;
            tokens.push_back((llama_token) ((state >> 8) % (uint32_t) llama_vocab_n_tokens(vocab)));
        }
        return tokens;
    }
    std::string text = "The capital of France is a city where";
    while ((int) text.size() < 8 * length) {
        text += " the ship sailed from the harbour with a hold full of barrels, and nobody on board knew what was in them.";
    }
    tokens.resize(text.size() + 8);
    int count = llama_tokenize(vocab, text.c_str(), (int32_t) text.size(), tokens.data(), (int32_t) tokens.size(), true, false);
    if (count < length) {
        fail("the text is too short");
    }
    tokens.resize((size_t) length);
    return tokens;
}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[all.size() / 2];
}

static const float * decode(llama_context * context, llama_token * tokens, int count) {
    if (llama_decode(context, llama_batch_get_one(tokens, count)) != 0) {
        fail("llama_decode has failed");
    }
    return llama_get_logits_ith(context, -1);
}

static llama_token best(const float * logits, int words) {
    return (llama_token) (std::max_element(logits, logits + words) - logits);
}

static void run(llama_model * model, const std::string & name, const settings & all) {
    std::vector<std::string> parts = split(name, '/');
    if (parts.size() != 3) {
        fail("what is case " + name + "?");
    }
    int micro = atoi(parts[0].c_str()), length = atoi(parts[2].c_str());
    fprintf(stderr, "case: %s\n", name.c_str());
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t) number(all, "context", "4096");
    params.n_batch = params.n_ctx;
    params.n_ubatch = (uint32_t) micro;
    params.n_outputs_max = 1;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = parts[1] == "on" ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) {
        fail("there is no context");
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int words = llama_vocab_n_tokens(vocab), count = number(all, "tokens", "16"), repeat = number(all, "repeat", "0");
    const int end = number(all, "end", "0");
    const bool batches = get(all, "batches", "yes") == "yes";
    std::vector<llama_token> prompt = prompt_of(vocab, length);
    llama_memory_t memory = llama_get_memory(context);

    // In batches of one micro-batch, then at once.
    for (int at = 0; at < length && batches; at += micro) {
        hash logits;
        logits.add(decode(context, prompt.data() + at, std::min(micro, length - at)), words);
        printf("%s batch %d %016" PRIx64 "\n", name.c_str(), at / micro, logits.value);
    }
    llama_memory_clear(memory, true);
    const float * last = decode(context, prompt.data(), length);
    hash logits, following;
    logits.add(last, words);
    printf("%s prompt %016" PRIx64 "\n", name.c_str(), logits.value);
    fflush(stdout);
    std::vector<llama_token> said;
    for (int i = 0; i < count; i++) {
        said.push_back(best(last, words));
        last = decode(context, &said.back(), 1);
        following.add(last, words);
        if (end && i == count / 2) {
            kill(end, SIGKILL);
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
    }
    if (count > 0) {
        printf("%s tokens %016" PRIx64, name.c_str(), following.value);
        for (llama_token token : said) {
            printf(" %d", token);
        }
        printf("\n");
    }
    std::vector<double> prompts, tokens;
    for (int i = 0; i < repeat; i++) {
        llama_memory_clear(memory, true);
        double begin = now();
        last = decode(context, prompt.data(), length);
        prompts.push_back(length / (now() - begin));
        begin = now();
        for (int j = 0; j < count; j++) {
            llama_token token = best(last, words);
            last = decode(context, &token, 1);
        }
        tokens.push_back(count / (now() - begin));
    }
    if (repeat > 0) {
        printf("%s speed %.1f %.1f\n", name.c_str(), median(prompts), median(tokens));
    }
    fflush(stdout);
    llama_free(context);
}

int main(int argc, char ** argv) {
    if (argc < 3) {
        fail("usage: logits MODEL CASES [WHAT=VALUE ...], or logits serve PORTFILE [WHAT=VALUE ...]");
    }
    settings all;
    for (int i = 3; i < argc; i++) {
        std::string word = argv[i];
        size_t at = word.find('=');
        if (at == std::string::npos) {
            fail("what is " + word + "?");
        }
        all[word.substr(0, at)] = word.substr(at + 1);
    }
    if (strcmp(argv[1], "serve") == 0) {
        return serve(argv[2], all);
    }
    // Whether sending or receiving fails first is by chance, and must make no difference.
    signal(SIGPIPE, SIG_IGN);
    load_backends(all);
    std::vector<ggml_backend_dev_t> devices;
    llama_model_params params = llama_model_default_params();
    if (all.count("rpc")) {
        devices = remote(all["rpc"]);
        params.devices = devices.data();
    }
    params.n_gpu_layers = number(all, "layers", "999");
    llama_model * model = llama_model_load_from_file(argv[1], params);
    if (!model) {
        fail(std::string("can't load ") + argv[1]);
    }
    for (const std::string & name : split(argv[2], ',')) {
        run(model, name, all);
    }
    llama_model_free(model);
    return 0;
}
