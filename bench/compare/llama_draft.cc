// llama.cpp doing what strata bench draft does, with a DFlash2 draft that has an embedding and a
// head of its own: a row of features more in the context, then a block of guesses after it, whose
// candidates and their scores come back; in two calls, as llama.cpp's own loop makes them. Features
// and tokens are drawn at random, before the clock starts. Built by run.sh.
//
//   llama_draft DRAFT THREADS WIDTH MASK CONTEXT DRAFTS REPEATS SEED GUESSES...
//
// THREADS is a number, or cuda; WIDTH the values of a row of features, MASK the token of an open
// place in a block. Prints one JSON object: ms of a draft, one mean a repeat, for each of GUESSES.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/compare/timer.h"
#include "llama-ext.h"
#include "llama.h"

using namespace timer;

namespace {

struct Shape {
    std::size_t width = 0;
    llama_token mask = 0;
    long context = 0;
};

class Draft {
  public:
    Draft(const char* path, const char* device, const Shape& shape, long room) : shape_(shape) {
        const bool on_gpu = std::strcmp(device, "cuda") == 0;
        llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        llama_backend_init();
        llama_model_params model = llama_model_default_params();
        model.n_gpu_layers = on_gpu ? kAllLayers : 0;
        model_ = llama_model_load_from_file(path, model);
        if (model_ == nullptr) fail("the draft cannot be loaded");
        llama_context_params params = llama_context_default_params();
        // Of a short context too a block fits a step.
        params.n_ctx = params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(room);
        if (!on_gpu) params.n_threads = params.n_threads_batch = std::atoi(device);
        context_ = llama_init_from_model(model_, params);
        if (context_ == nullptr) fail("no context of the draft");
        llama_set_embeddings_nextn(context_, true, false);
        llama_set_causal_attn(context_, false);
        batch_ = llama_batch_ext_init(context_);
        vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    }

    int vocabulary() const { return vocabulary_; }

    // Rows of features, one after the other.
    std::vector<float> draw_features(long rows) {
        std::vector<float> features(static_cast<std::size_t>(rows) * shape_.width);
        for (float& value : features) value = normal_(random_);
        return features;
    }

    // The context: these rows at the positions from `first` on.
    void inject(long first, std::vector<float>& features) {
        llama_batch_ext_clear(batch_);
        for (std::size_t at = 0; at < features.size(); at += shape_.width, ++first) {
            place(llama_batch_ext_add_embd(batch_, 0, {features.data() + at, 1, shape_.width}),
                  first);
        }
        run();
    }

    // A block after the context, which is as it was afterwards.
    void guess(long position, llama_token anchor, long guesses) {
        llama_batch_ext_clear(batch_);
        for (long i = 0; i <= guesses; ++i) {
            const llama_token token = i == 0 ? anchor : shape_.mask;
            place(llama_batch_ext_add_token(batch_, 0, token), position + i);
        }
        run();
        if (llama_get_embeddings_nextn(context_) == nullptr) fail("no scores came back");
        truncate(position);
    }

    void wait() { llama_synchronize(context_); }

    void truncate(long position) {
        llama_memory_seq_rm(llama_get_memory(context_), 0, static_cast<llama_pos>(position), -1);
    }

  private:
    void place(std::int32_t at, long position) {
        const auto p = static_cast<llama_pos>(position);
        const llama_pos positions[] = {p, p, p, 0};
        if (at < 0 || !llama_batch_ext_set_pos(batch_, at, positions)) fail("a row was refused");
        // Candidates and scores come all the same; what this asks for is the logits of all tokens.
        llama_batch_ext_set_output_embd(batch_, at, false);
    }

    void run() {
        if (llama_process(context_, LLAMA_PROCESS_TYPE_DECODE, batch_) != 0) {
            fail("a batch did not run");
        }
    }

    const Shape shape_;
    std::mt19937 random_{1};
    std::normal_distribution<float> normal_;
    llama_model* model_ = nullptr;
    llama_context* context_ = nullptr;
    llama_batch_ext* batch_ = nullptr;
    int vocabulary_ = 0;
};

// As in strata bench, the first drafts of a repeat are not timed.
constexpr long kFirstDrafts = 3;

double repeat(Draft& draft, const Shape& shape, long drafts, long guesses,
              const std::vector<llama_token>& anchors) {
    draft.truncate(0);
    std::vector<float> context = draft.draw_features(shape.context);
    draft.inject(0, context);
    draft.wait();
    double sum = 0;
    for (long i = 0; i < kFirstDrafts + drafts; ++i) {
        const long position = shape.context + i;
        std::vector<float> features = draft.draw_features(1);
        const auto start = Clock::now();
        draft.inject(position, features);
        draft.guess(position + 1, anchors[static_cast<std::size_t>(i)], guesses);
        if (i >= kFirstDrafts) sum += ms_since(start);
    }
    return sum / static_cast<double>(drafts);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 10) fail("see llama_draft.cc for what it takes");
    const auto number = [&](int i) { return std::atol(argv[i]); };
    constexpr long kSpare = 64;
    const Shape shape = {static_cast<std::size_t>(number(3)), static_cast<llama_token>(number(4)),
                         number(5)};
    const long drafts = number(6);
    Draft draft(argv[1], argv[2], shape, shape.context + drafts + kSpare);
    const std::vector<llama_token> anchors =
        draw(static_cast<std::uint64_t>(number(8)), kFirstDrafts + drafts, draft.vocabulary());
    std::printf("{\"drafts\":[");
    for (int i = 9; i < argc; ++i) {
        std::vector<double> ms;
        // As in strata bench, the first run is not timed.
        for (long r = 0; r <= number(7); ++r) {
            const double taken = repeat(draft, shape, drafts, number(i), anchors);
            if (r > 0) ms.push_back(taken);
        }
        std::printf("%s{\"guesses\":%ld,\"ms\":", i == 9 ? "" : ",", number(i));
        print_list(ms);
        std::printf("}");
    }
    std::printf("]}\n");
    return 0;
}
