#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "eval/row.h"
#include "eval/windows.h"
#include "gguf/same_tokenizer.h"

namespace strata {
namespace {

// What the predictions so far add up to.
class Comparison {
  public:
    // Of the models in these files.
    Comparison(const std::string& model, const std::string& against)
        : model_(model), against_(against) {}

    Status add(std::span<const float> other, std::span<const float> row) {
        const double value = eval::divergence(other, row);
        if (!std::isfinite(value)) {
            return STRATA_ERROR("after token ", divergence_.count(), " of the text the logits of ",
                                quote(model_), " and ", quote(against_), " are ", value,
                                " nats apart, wanted finite logits");
        }
        if (value > largest_) {
            largest_ = value;
            largest_position_ = divergence_.count();
        }
        divergence_.add(value);
        add_tops(other, row);
        return Ok{};
    }
    std::int64_t count() const { return divergence_.count(); }

    Agreement result(const eval::Text& text) const {
        Agreement out;
        out.tokens = static_cast<std::int64_t>(text.tokens.size());
        out.window = text.window;
        out.divergence = divergence_.mean();
        out.largest_divergence = largest_;
        out.largest_position = largest_position_;
        out.same_top = static_cast<double>(same_top_) / static_cast<double>(count());
        out.largest_margin = largest_margin_;
        return out;
    }

  private:
    void add_tops(std::span<const float> other, std::span<const float> row) {
        const std::size_t wanted = eval::top(other);
        const std::size_t found = eval::top(row);
        if (wanted == found) ++same_top_;
        const double margin = static_cast<double>(other[wanted]) - other[found];
        largest_margin_ = std::max(largest_margin_, margin);
    }

    const std::string& model_;
    const std::string& against_;
    eval::MeanOf divergence_;
    double largest_ = 0;
    std::int64_t largest_position_ = 0;
    std::int64_t same_top_ = 0;
    double largest_margin_ = 0;
};

Status compare_window(Engine& engine, Engine& against, std::span<const std::int32_t> tokens,
                      std::vector<float>& kept, const eval::RowVisit& compare) {
    kept.clear();
    STRATA_TRY(eval::visit_rows(against, tokens, [&](std::size_t, std::span<const float> row) {
        kept.insert(kept.end(), row.begin(), row.end());
        return Status(Ok{});
    }));
    return eval::visit_rows(engine, tokens, compare);
}

Result<std::unique_ptr<Engine>> load_other(const AgreementRequest& request, const Engine& engine) {
    STRATA_ASSIGN(auto against, Engine::load(request.against));
    if (against->info().vocabulary != engine.info().vocabulary) {
        return STRATA_ERROR(quote(request.model.model), " has a vocabulary of ",
                            engine.info().vocabulary, " tokens and ", quote(request.against.model),
                            " one of ", against->info().vocabulary, ", wanted the same");
    }
    return against;
}

Status check_same_text(const AgreementRequest& request) {
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(request.model.model));
    STRATA_ASSIGN(const gguf::File against, gguf::File::open(request.against.model));
    return gguf::check_same_tokenizer(file, against);
}

}  // namespace

Result<Agreement> agreement(const AgreementRequest& request, const EvalProgress& progress) {
    STRATA_TRY(check_same_text(request));
    STRATA_ASSIGN(const auto engine, Engine::load(request.model));
    STRATA_ASSIGN(const auto against, load_other(request, *engine));
    STRATA_ASSIGN(const eval::Text text, eval::Text::create(*engine, request.text, request.window));
    const auto vocabulary = static_cast<std::size_t>(engine->info().vocabulary);
    const std::int64_t total = text.predictions();
    Comparison comparison(request.model.model, request.against.model);
    std::vector<float> kept;
    while (comparison.count() < total) {
        const auto compare = [&](std::size_t i, std::span<const float> row) -> Status {
            STRATA_TRY(comparison.add(std::span(kept).subspan(i * vocabulary, vocabulary), row));
            if (!progress || progress(comparison.count(), total)) return Ok{};
            return STRATA_ERROR("interrupted after ", comparison.count(), " of ", total,
                                " predictions");
        };
        STRATA_TRY(compare_window(*engine, *against, text.at(comparison.count()), kept, compare));
    }
    return comparison.result(text);
}

}  // namespace strata
