// llama.cpp doing what strata bench decode and prompt do: the same tokens, the same windows, the
// same moment at which the clock stops. Built by run.sh against llama.cpp's own headers.
//
//   llama MODEL THREADS decode DEPTH TOKENS REPEATS SEED ROWS...
//   llama MODEL THREADS prompt TOKENS REPEATS SEED
//
// THREADS is a number, or cuda: then all layers are on the GPU.
//
// Prints one JSON object: ms of a window (or of the prompt), one mean a repeat, and the likeliest
// token after the last row.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/compare/timer.h"
#include "llama.h"

using namespace timer;

namespace {

constexpr std::uint32_t kGpuStepRows = 2048;

class Program {
  public:
    Program(const char* path, const char* device, long context) {
        const bool on_gpu = std::strcmp(device, "cuda") == 0;
        llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        llama_backend_init();
        llama_model_params model = llama_model_default_params();
        model.n_gpu_layers = on_gpu ? kAllLayers : 0;
        model_ = llama_model_load_from_file(path, model);
        if (model_ == nullptr) fail("the model cannot be loaded");
        llama_context_params params = llama_context_default_params();
        params.n_ctx = static_cast<std::uint32_t>(context);
        if (on_gpu) {
            // Prompts whole, in steps as large as pay on a GPU.
            params.n_batch = std::max(params.n_ctx, params.n_batch);
            params.n_ubatch = std::min(params.n_batch, kGpuStepRows);
        } else {
            params.n_threads = params.n_threads_batch = std::atoi(device);
        }
        context_ = llama_init_from_model(model_, params);
        if (context_ == nullptr) fail("no context");
        vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        batch_ = llama_batch_init(static_cast<std::int32_t>(context), 0, 1);
    }

    int vocabulary() const { return vocabulary_; }

    // Milliseconds until the logits of the last row, or of all, are in memory.
    double run(const llama_token* tokens, long rows, long first, bool all_logits) {
        batch_.n_tokens = static_cast<std::int32_t>(rows);
        for (long i = 0; i < rows; ++i) {
            batch_.token[i] = tokens[i];
            batch_.pos[i] = static_cast<llama_pos>(first + i);
            batch_.n_seq_id[i] = 1;
            batch_.seq_id[i][0] = 0;
            batch_.logits[i] = all_logits || i == rows - 1;
        }
        const auto start = Clock::now();
        if (llama_decode(context_, batch_) != 0) fail("llama_decode failed");
        const float* logits = llama_get_logits_ith(context_, static_cast<std::int32_t>(rows - 1));
        const double ms = ms_since(start);
        top_ = static_cast<int>(std::max_element(logits, logits + vocabulary_) - logits);
        return ms;
    }

    void clear() { llama_memory_clear(llama_get_memory(context_), true); }
    std::vector<std::uint8_t> save() {
        std::vector<std::uint8_t> state(llama_state_seq_get_size(context_, 0));
        state.resize(llama_state_seq_get_data(context_, state.data(), state.size(), 0));
        return state;
    }
    void restore(const std::vector<std::uint8_t>& state) {
        clear();
        if (llama_state_seq_set_data(context_, state.data(), state.size(), 0) == 0) {
            fail("the state cannot be restored");
        }
    }
    int top() const { return top_; }

  private:
    llama_model* model_ = nullptr;
    llama_context* context_ = nullptr;
    llama_batch batch_{};
    int vocabulary_ = 0;
    int top_ = 0;
};

void decode(Program& program, long depth, long tokens, long repeats, std::uint64_t seed,
            const std::vector<long>& windows, long room) {
    const std::vector<llama_token> drawn = draw(seed, room, program.vocabulary());
    if (depth > 0) program.run(drawn.data(), depth, 0, false);
    const std::vector<std::uint8_t> start = program.save();
    std::vector<std::vector<double>> ms(windows.size());
    std::vector<int> tops(windows.size());
    // As in strata bench, the first runs of each are not timed.
    constexpr long kUntimed = 2;
    for (long repeat = 0; repeat < kUntimed + repeats; ++repeat) {
        for (std::size_t w = 0; w < windows.size(); ++w) {
            if (depth > 0)
                program.restore(start);
            else
                program.clear();
            const long steps = (tokens + windows[w] - 1) / windows[w];
            double sum = 0;
            for (long i = 0; i < steps; ++i) {
                const long at = depth + i * windows[w];
                sum += program.run(drawn.data() + at, windows[w], at, true);
            }
            if (repeat >= kUntimed) ms[w].push_back(sum / static_cast<double>(steps));
            tops[w] = program.top();
        }
    }
    std::printf("{\"windows\":[");
    for (std::size_t w = 0; w < windows.size(); ++w) {
        std::printf("%s{\"rows\":%ld,\"top_token\":%d,\"ms\":", w == 0 ? "" : ",", windows[w],
                    tops[w]);
        print_list(ms[w]);
        std::printf("}");
    }
    std::printf("]}\n");
}

void prompt(Program& program, long tokens, long repeats, std::uint64_t seed) {
    const std::vector<llama_token> drawn = draw(seed, tokens, program.vocabulary());
    std::vector<double> ms;
    // As in strata bench, the first run is not timed.
    for (long repeat = 0; repeat <= repeats; ++repeat) {
        program.clear();
        const double taken = program.run(drawn.data(), tokens, 0, false);
        if (repeat > 0) ms.push_back(taken);
    }
    std::printf("{\"rows\":%ld,\"top_token\":%d,\"ms\":", tokens, program.top());
    print_list(ms);
    std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) fail("see llama.cc for what it takes");
    const std::string mode = argv[3];
    const auto number = [&](int i) { return std::atol(argv[i]); };
    constexpr long kWindowMax = 16;
    if (mode == "decode" && argc >= 9) {
        const long room = number(4) + number(5) + kWindowMax;
        Program program(argv[1], argv[2], room);
        std::vector<long> windows;
        for (int i = 8; i < argc; ++i) windows.push_back(number(i));
        decode(program, number(4), number(5), number(6), static_cast<std::uint64_t>(number(7)),
               windows, room);
    } else if (mode == "prompt") {
        Program program(argv[1], argv[2], number(4));
        prompt(program, number(4), number(5), static_cast<std::uint64_t>(number(6)));
    } else {
        fail("see llama.cc for what it takes");
    }
    return 0;
}
