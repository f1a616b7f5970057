// Random tiny models, loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/target.h"
#include "synth/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::test {

using Tokens = std::vector<std::int32_t>;

// A model of synth's preset "tiny", changed by `change`, on its own backend. Values of equal names
// and shapes are equal in all of them.
class TinyTarget {
  public:
    struct Options {
        std::function<void(model::Config&)> change = [](model::Config&) {};
        quant::Type type = quant::Type::bf16;
        int threads = 1;
        bool poison = false;  // as BackendOptions says
        std::int64_t rows_max = 64;
        model::NgramOptions ngram = {};
    };
    explicit TinyTarget(const Options& options);
    TinyTarget() : TinyTarget(Options{}) {}

    model::Target& operator*() { return *target_; }
    model::Target* operator->() { return target_.get(); }

    model::Sequence sequence(bool mtp = false, std::int64_t context = 256,
                             op::CacheType cache = op::CacheType::f16);

    // Runs all `tokens` in steps of `rows` rows and commits them; logits of every row.
    std::vector<float> run(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                           std::int64_t rows, bool window,
                           op::DeltaForm form = op::DeltaForm::recurrent);
    // One step, not committed.
    std::vector<float> step(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                            bool window, op::DeltaForm form = op::DeltaForm::recurrent);

    const std::string& path() const { return path_; }

  private:
    TempDir folder_;
    std::string path_;
    Backend backend_;
    std::unique_ptr<model::Target> target_;
};

// `count` tokens below `vocabulary`, with the n-gram end token among them.
Tokens random_tokens(const char* seed, std::int64_t count, const model::Config& config);

}  // namespace strata::test
