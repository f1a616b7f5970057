// Draws random features of random lengths, has Strata and llama.cpp draft after the same ones, and
// compares the scores of the rows that Strata walked and the chains that come of them.
//
//   lattice TARGET.gguf DRAFT.gguf [CHAINS [CONTEXT]]
//
// Prints the largest and the mean difference of scores, how many chains are equal, and of the
// others by how much the first differing pick was ahead in each program. Ends with 1 where a chain
// differs by more than a near tie.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gguf/reader.h"
#include "llama-ext.h"
#include "llama.h"
#include "model/target.h"
#include "spec/dflash/block_model.h"

namespace {

using namespace strata;

// Picks whose scores are closer than this may fall either way.
constexpr double kNearTie = 5e-3;
constexpr int kThreads = 2;

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "lattice: %s\n", what.c_str());
    std::exit(1);
}

template <typename T>
T must(Result<T> result) {
    if (!result.ok()) fail(result.error().message);
    return std::move(result).value();
}

// One block row: the candidates' scores after the walked predecessor.
using Row = std::map<std::int32_t, double>;

struct Chain {
    std::vector<std::int32_t> path;
    std::vector<Row> rows;
};

struct Case {
    std::vector<float> features;  // [length, width]
    std::int64_t length = 0;
    std::int32_t anchor = 0;
};

class Ours {
  public:
    Ours(const std::string& target, const std::string& draft, std::int64_t context)
        : backend_(must(make_cpu_backend({}))) {
        target_ = must(
            model::Target::load(must(gguf::File::open(target)), *backend_.device, backend_.ops, 1));
        model_ = must(dflash::BlockModel::load(must(gguf::File::open(draft)), *target_,
                                               *backend_.device, backend_.ops, context));
        context_ = std::make_unique<dflash::Context>(
            must(model_->make_context({.context = context + kSpare, .cache = op::CacheType::f32})));
    }

    const dflash::Config& config() const { return model_->config(); }

    Chain draft(Case& one) {
        model_->truncate(*context_, 0);
        model_->inject(
            *context_, 0,
            MatrixView<const float>{one.features.data(), one.length, config().feature_width()});
        const dflash::Guess guess = must(model_->draft(
            *context_,
            {.position = one.length, .anchor = one.anchor, .rows = config().block_size}));
        Chain chain{guess.path, {}};
        for (std::size_t i = 0; i < guess.path.size(); ++i) {
            Row row;
            for (std::int64_t c = 0; c < guess.width; ++c) {
                const auto at = i * static_cast<std::size_t>(guess.width) + c;
                row[guess.candidates[at]] = guess.scores[at];
            }
            chain.rows.push_back(std::move(row));
        }
        return chain;
    }

  private:
    static constexpr std::int64_t kSpare = 64;
    Backend backend_;
    std::unique_ptr<model::Target> target_;
    std::unique_ptr<dflash::BlockModel> model_;
    std::unique_ptr<dflash::Context> context_;
};

class Theirs {
  public:
    Theirs(const std::string& draft, const dflash::Config& config, std::int64_t length)
        : config_(config) {
        llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        llama_backend_init();
        llama_model_params model = llama_model_default_params();
        model.n_gpu_layers = 0;
        model_ = llama_model_load_from_file(draft.c_str(), model);
        if (model_ == nullptr) fail("llama.cpp cannot load the draft");
        llama_context_params params = llama_context_default_params();
        params.n_ctx = static_cast<std::uint32_t>(length + 256);
        params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(length + 256);
        params.type_k = params.type_v = GGML_TYPE_F32;
        params.n_threads = params.n_threads_batch = kThreads;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        context_ = llama_init_from_model(model_, params);
        if (context_ == nullptr) fail("llama.cpp makes no context of the draft");
        llama_set_embeddings_nextn(context_, true, false);
        llama_set_causal_attn(context_, false);
        batch_ = llama_batch_ext_init(context_);
    }

    Chain draft(Case& one) {
        llama_memory_clear(llama_get_memory(context_), true);
        inject(one);
        llama_batch_ext_clear(batch_);
        for (llama_pos i = 0; i < config_.block_size; ++i) {
            const llama_token token =
                i == 0 ? one.anchor : static_cast<llama_token>(config_.mask_token);
            const llama_pos position = static_cast<llama_pos>(one.length) + i;
            place(llama_batch_ext_add_token(batch_, 0, token), position);
        }
        run();
        return walk(llama_get_embeddings_nextn(context_));
    }

  private:
    void place(std::int32_t at, llama_pos position) {
        const llama_pos positions[] = {position, position, position, 0};
        if (at < 0 || !llama_batch_ext_set_pos(batch_, at, positions)) fail("a row was refused");
        llama_batch_ext_set_output_embd(batch_, at, true);
    }

    void inject(Case& one) {
        const auto width = static_cast<std::size_t>(config_.feature_width());
        llama_batch_ext_clear(batch_);
        for (std::int64_t t = 0; t < one.length; ++t) {
            float* row = one.features.data() + static_cast<std::size_t>(t) * width;
            place(llama_batch_ext_add_embd(batch_, 0, {row, 1, width}), static_cast<llama_pos>(t));
        }
        run();
    }

    void run() {
        if (llama_process(context_, LLAMA_PROCESS_TYPE_DECODE, batch_) != 0) {
            fail("llama.cpp did not run a batch");
        }
    }

    // A lattice row: the candidates, then for every candidate of the row before their scores.
    Chain walk(const float* lattice) const {
        if (lattice == nullptr) fail("llama.cpp gave no lattice");
        Chain chain;
        std::ptrdiff_t before = 0;
        for (std::int64_t i = 1; i < config_.block_size; ++i) {
            const float* row = lattice + i * config_.hidden;
            const float* scores = row + config_.candidates + before * config_.candidates;
            Row found;
            for (int c = 0; c < config_.candidates; ++c) {
                found[static_cast<std::int32_t>(row[c])] = scores[c];
            }
            before = std::max_element(scores, scores + config_.candidates) - scores;
            chain.path.push_back(static_cast<std::int32_t>(row[before]));
            chain.rows.push_back(std::move(found));
        }
        return chain;
    }

    const dflash::Config& config_;
    llama_model* model_ = nullptr;
    llama_context* context_ = nullptr;
    llama_batch_ext* batch_ = nullptr;
};

struct Totals {
    double largest = 0;
    double sum = 0;
    long scores = 0;
    long missing = 0;  // candidates of one program that the other has not
    long equal = 0;
    long ties = 0;
    long different = 0;
};

// How far `pick` is ahead of `other` in a row that holds both.
double lead(const Row& row, std::int32_t pick, std::int32_t other) {
    const auto found = row.find(other);
    return found == row.end() ? INFINITY : row.at(pick) - found->second;
}

// Rows after the first differing pick have other predecessors and are not compared.
void compare(const Chain& ours, const Chain& theirs, Totals& totals) {
    for (std::size_t i = 0; i < ours.path.size(); ++i) {
        for (const auto& [token, score] : ours.rows[i]) {
            const auto found = theirs.rows[i].find(token);
            if (found == theirs.rows[i].end()) {
                ++totals.missing;
                continue;
            }
            const double error = std::abs(score - found->second);
            totals.largest = std::max(totals.largest, error);
            totals.sum += error;
            ++totals.scores;
        }
        if (ours.path[i] == theirs.path[i]) continue;
        const double ahead = lead(ours.rows[i], ours.path[i], theirs.path[i]);
        const double behind = lead(theirs.rows[i], theirs.path[i], ours.path[i]);
        ++(std::max(ahead, behind) < kNearTie ? totals.ties : totals.different);
        std::printf("guess %zu: %d here, ahead by %.2e; %d there, ahead by %.2e\n", i, ours.path[i],
                    ahead, theirs.path[i], behind);
        return;
    }
    ++totals.equal;
}

Case draw(std::mt19937& random, const dflash::Config& config, std::int64_t longest) {
    Case one;
    one.length = std::uniform_int_distribution<std::int64_t>(1, longest)(random);
    one.anchor = std::uniform_int_distribution<std::int32_t>(
        0, static_cast<std::int32_t>(config.vocabulary - 1))(random);
    one.features.resize(static_cast<std::size_t>(one.length * config.feature_width()));
    std::normal_distribution<float> normal;
    for (float& value : one.features) value = normal(random);
    return one;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) fail("TARGET.gguf DRAFT.gguf [CHAINS [CONTEXT]] are wanted");
    const long chains = argc > 3 ? std::atol(argv[3]) : 300;
    const long longest = argc > 4 ? std::atol(argv[4]) : 200;
    Ours ours(argv[1], argv[2], longest);
    Theirs theirs(argv[2], ours.config(), longest);
    std::mt19937 random(1);
    Totals totals;
    for (long i = 0; i < chains; ++i) {
        Case one = draw(random, ours.config(), longest);
        compare(ours.draft(one), theirs.draft(one), totals);
    }
    std::printf("chains     %ld of %ld equal, %ld near ties, %ld different\n", totals.equal, chains,
                totals.ties, totals.different);
    std::printf("scores     largest difference %.3e, mean %.3e, of %ld\n", totals.largest,
                totals.sum / static_cast<double>(std::max(totals.scores, 1L)), totals.scores);
    std::printf("candidates %ld that the other program has not\n", totals.missing);
    return totals.different == 0 ? 0 : 1;
}
