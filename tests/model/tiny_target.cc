#include "tests/model/tiny_target.h"

#include <gtest/gtest.h>

#include "tests/support/random.h"

namespace strata::test {
namespace {

template <typename T>
T must(Result<T> result) {
    if (!result.ok()) {
        ADD_FAILURE() << result.error().message;
        std::abort();
    }
    return std::move(result).value();
}

}  // namespace

TinyTarget::TinyTarget(const Options& options) : path_(folder_ / "tiny.gguf") {
    synth::SynthOptions synth;
    synth.config = must(synth::preset("tiny"));
    options.change(synth.config);
    synth.types.type = options.type;
    synth.output = path_;
    must(synth::synthesize(synth));
    backend_ = must(make_cpu_backend({.threads = options.threads, .poison = options.poison}));
    target_ = must(model::Target::load(must(gguf::File::open(path_)), *backend_.device,
                                       backend_.ops, options.rows_max, options.ngram));
}

model::Sequence TinyTarget::sequence(bool mtp, std::int64_t context, op::CacheType cache) {
    return must(target_->make_sequence({context, cache, mtp}));
}

std::vector<float> TinyTarget::step(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                                    bool window, op::DeltaForm form) {
    model::StepRequest request;
    request.tokens = tokens;
    request.window = window;
    request.form = form;
    request.logits = model::LogitRows::all;
    const model::StepResult result = must(target_->step(sequence, request));
    return {result.logits.data, result.logits.data + result.logits.size()};
}

std::vector<float> TinyTarget::run(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                                   std::int64_t rows, bool window, op::DeltaForm form) {
    std::vector<float> logits;
    while (!tokens.empty()) {
        const auto now = std::min(static_cast<std::size_t>(rows), tokens.size());
        const auto part = step(sequence, tokens.first(now), window, form);
        logits.insert(logits.end(), part.begin(), part.end());
        target_->commit(sequence, static_cast<std::int64_t>(now));
        tokens = tokens.subspan(now);
    }
    return logits;
}

Tokens random_tokens(const char* seed, std::int64_t count, const model::Config& config) {
    Random random(seed);
    Tokens tokens;
    constexpr std::int64_t kEndEvery = 13;
    for (std::int64_t i = 0; i < count; ++i) {
        const bool end = i % kEndEvery == kEndEvery - 2;
        tokens.push_back(static_cast<std::int32_t>(end ? config.ngram.end_token
                                                       : random.integer(0, config.vocabulary - 1)));
    }
    return tokens;
}

}  // namespace strata::test
