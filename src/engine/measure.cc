// Teacher-forced runs: logits, features and drafts of given tokens.
#include <algorithm>

#include "base/text.h"
#include "engine/parts.h"

namespace strata {
namespace {

Status check_tokens(std::span<const std::int32_t> tokens, std::size_t least, std::int64_t context) {
    if (tokens.size() < least || static_cast<std::int64_t>(tokens.size()) > context) {
        return STRATA_ERROR("there are ", tokens.size(), " tokens, wanted ", least,
                            " to the context of ", context);
    }
    return Ok{};
}

// Hands the features of every row on.
class FeatureSink final : public spec::Follower {
  public:
    FeatureSink(std::span<const std::int64_t> layers, const RowSink& sink)
        : layers_(layers), sink_(sink) {}
    void want(const spec::StepRows&, model::StepRequest& request) override {
        request.feature_layers = layers_;
    }
    Status keep(std::int64_t, std::span<const std::int32_t>,
                const model::StepResult& result) override {
        return sink_({result.features.data, static_cast<std::size_t>(result.features.size())});
    }

  private:
    std::span<const std::int64_t> layers_;
    const RowSink& sink_;
};

}  // namespace

Status Engine::logits(const LogitsRequest& request, const RowSink& sink) {
    const bool mtp = request.head == LogitsHead::mtp;
    STRATA_TRY(check_tokens(request.tokens, mtp ? 2 : 1, parts_->context));
    if (request.window < 0 || request.window > kWindowMax) {
        return STRATA_ERROR("the window is ", request.window, " rows, wanted 1 to ", kWindowMax);
    }
    model::Target& target = *parts_->target;
    STRATA_ASSIGN(model::Sequence sequence,
                  target.make_sequence(parts_->sequence_options(
                      static_cast<std::int64_t>(request.tokens.size()), mtp)));
    const model::LogitSink rows_sink = [&](MatrixView<const float> logits) {
        return sink({logits.data, static_cast<std::size_t>(logits.size())});
    };
    std::span<const std::int32_t> rest(request.tokens);
    while (!rest.empty()) {
        const std::int64_t rows_max = request.window > 0 ? request.window : parts_->options.chunk;
        const auto rows = std::min(static_cast<std::size_t>(rows_max), rest.size());
        model::StepRequest step;
        step.tokens = rest.first(rows);
        step.window = request.window > 0;
        step.form = step.window ? op::DeltaForm::recurrent : parts_->prompt_form();
        step.logits = mtp ? model::LogitRows::none : model::LogitRows::all;
        step.logit_sink = &rows_sink;
        STRATA_TRY(target.step(sequence, step));
        const auto run = static_cast<std::int64_t>(rows);
        if (mtp) {
            STRATA_TRY(target.commit(sequence, run, rows_sink));
        } else {
            target.commit(sequence, run);
        }
        rest = rest.subspan(rows);
    }
    return target.status();
}

Status Engine::features(std::span<const std::int32_t> tokens, std::span<const std::int64_t> layers,
                        const RowSink& sink) {
    STRATA_TRY(check_tokens(tokens, 1, parts_->context));
    if (layers.empty())
        return STRATA_ERROR("features of 0 layers were asked for, wanted 1 or more");
    STRATA_ASSIGN(model::Sequence sequence, parts_->target->make_sequence(parts_->sequence_options(
                                                static_cast<std::int64_t>(tokens.size()), false)));
    FeatureSink follower(layers, sink);
    return parts_->read_prompt(sequence, tokens, &follower, nullptr);
}

Result<Draft> Engine::draft_mtp(std::span<const std::int32_t> tokens, std::int32_t anchor,
                                std::int64_t guesses, float confidence_min) {
    STRATA_TRY(check_tokens(tokens, 1, parts_->context));
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (guesses < 1 || guesses > kWindowMax - 1) {
        return STRATA_ERROR(guesses, " guesses were asked for, wanted 1 to ", kWindowMax - 1);
    }
    STRATA_ASSIGN(model::Sequence sequence,
                  parts_->target->make_sequence(parts_->sequence_options(length + guesses, true)));
    STRATA_TRY(parts_->read_prompt(sequence, tokens, nullptr, nullptr));
    STRATA_ASSIGN(model::MtpDraft draft,
                  parts_->target->draft(sequence, anchor, guesses, confidence_min));
    return Draft{std::move(draft.path), std::move(draft.confidence), 0, {}, {}};
}

Result<Draft> Engine::draft_dflash(std::span<const std::int32_t> tokens, std::int32_t anchor,
                                   std::int64_t rows, float confidence_min) {
    if (parts_->dflash == nullptr) {
        return STRATA_ERROR("a block draft was asked for and no DFlash2 draft was loaded");
    }
    STRATA_TRY(check_tokens(tokens, 1, parts_->context));
    dflash::BlockModel& drafter = *parts_->dflash;
    const auto length = static_cast<std::int64_t>(tokens.size());
    const std::int64_t all_rows = rows == 0 ? drafter.config().block_size : rows;
    const model::SequenceOptions options = parts_->sequence_options(length, false);
    STRATA_ASSIGN(model::Sequence sequence, parts_->target->make_sequence(options));
    STRATA_ASSIGN(dflash::Context context, drafter.make_context({length, options.cache}));
    const RowSink inject = [&](std::span<const float> values) -> Status {
        const std::int64_t width = drafter.config().feature_width();
        drafter.inject(context, sequence.length(),
                       {values.data(), static_cast<std::int64_t>(values.size()) / width, width});
        return Ok{};
    };
    FeatureSink follower(drafter.config().target_layers, inject);
    STRATA_TRY(parts_->read_prompt(sequence, tokens, &follower, nullptr));
    STRATA_ASSIGN(dflash::Guess guess,
                  drafter.draft(context, {length, anchor, all_rows, confidence_min}));
    return Draft{std::move(guess.path), std::move(guess.confidence), guess.width,
                 std::move(guess.candidates), std::move(guess.scores)};
}

}  // namespace strata
