#include "spec/dflash_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace strata::spec {
namespace {

// Of rows that wait for a guess, at least so many and else at most so many bytes. Rows that no
// layer will see any more need not be put into the context at all, so where twice the layers' reach
// fits, a draft that never guesses computes nothing.
constexpr std::int64_t kPendingRowsMin = 64;
constexpr std::int64_t kPendingBytes = std::int64_t{8} << 20;

std::int64_t row_bytes(const dflash::Config& config) {
    return config.feature_width() * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t pending_rows(const dflash::Config& config, std::int64_t reach) {
    return std::clamp(kPendingBytes / row_bytes(config), kPendingRowsMin,
                      std::max(kPendingRowsMin, 2 * reach));
}

}  // namespace

Result<std::unique_ptr<DflashDrafter>> DflashDrafter::create(dflash::BlockModel& model,
                                                             const dflash::ContextOptions& options,
                                                             float confidence_min) {
    STRATA_ASSIGN(dflash::Context context, model.make_context(options));
    const std::int64_t reach = dflash::Context::reach(model.config(), options.context);
    STRATA_ASSIGN(dflash::Waiting pending, model.make_waiting(pending_rows(model.config(), reach)));
    return std::unique_ptr<DflashDrafter>(
        new DflashDrafter(model, std::move(context), std::move(pending), reach, confidence_min));
}

std::uint64_t DflashDrafter::bytes(const dflash::Config& config,
                                   const dflash::ContextOptions& options) {
    const std::int64_t rows = pending_rows(config, dflash::Context::reach(config, options.context));
    return dflash::Context::bytes(config, options) +
           static_cast<std::uint64_t>(rows * row_bytes(config));
}

void DflashDrafter::reset() {
    pending_.clear();
    model_.truncate(context_, 0);
}

void DflashDrafter::want(const StepRows& rows, model::StepRequest& request) {
    const std::int64_t end = rows.first + rows.count;
    seen_from_ = std::max(rows.first, rows.end - reach_);
    if (seen_from_ >= end) return;
    request.feature_layers = model_.config().target_layers;
    // A layer sees more than a window, so all of its rows.
    if (!request.window) return;
    STRATA_CHECK(seen_from_ == rows.first);
    make_room(rows.first, rows.count, rows.first);
    request.features_to = pending_.next();
}

void DflashDrafter::make_room(std::int64_t position, std::int64_t count, std::int64_t seen_by) {
    if (pending_.count() + count > pending_.capacity()) drop_unseen(seen_by);
    if (!pending_.make_room(position, count)) inject_pending();
}

Status DflashDrafter::keep(std::int64_t first, std::span<const std::int32_t> tokens,
                           const model::StepResult& result) {
    const std::int64_t end = first + static_cast<std::int64_t>(tokens.size());
    const std::int64_t from = std::max(first, seen_from_);
    if (from >= end) return Ok{};
    if (result.features.rows == 0) {
        pending_.add(first, end - first);
        return Ok{};
    }
    STRATA_CHECK(result.features.cols == model_.config().feature_width());
    STRATA_CHECK(result.features.rows >= end - first);
    const MatrixView<const float> rows = result.features.rows_from(from - first, end - from);
    make_room(from, rows.rows, end);
    if (pending_.make_room(from, rows.rows)) {
        pending_.append(from, rows);
    } else {
        model_.inject(context_, from, rows);
    }
    return Ok{};
}

void DflashDrafter::drop_unseen(std::int64_t end) {
    pending_.drop(std::clamp(end - reach_ - pending_.first(), std::int64_t{0}, pending_.count()));
}

void DflashDrafter::inject_pending() {
    if (pending_.count() > 0) {
        model_.inject_on_device(context_, {pending_.first(), pending_.rows()});
    }
    pending_.clear();
}

Result<Guesses> DflashDrafter::guess(const GuessRequest& request) {
    dflash::DraftRequest block;
    block.position = static_cast<std::int64_t>(request.text.size()) - 1;
    block.anchor = request.text.back();
    block.rows = std::min(request.count + 1, model_.config().block_size);
    block.confidence_min = confidence_min_;
    block.keep_scores = false;
    if (request.draw != nullptr) {
        block.rows = std::min<std::int64_t>(block.rows, op::kDrawRowsMax + 1);
        block.draws = request.draw->draws_along(request.text, block.rows - 1);
    }
    STRATA_ASSIGN(dflash::Guess guess,
                  model_.draft(context_, block, {pending_.first(), pending_.rows()}));
    pending_.clear();
    return Guesses{std::move(guess.path), std::move(guess.confidence), block.rows - 1};
}

std::string DflashDrafter::save() {
    inject_pending();
    return model_.save(context_);
}

void DflashDrafter::restore(std::string_view saved) {
    pending_.clear();
    if (!model_.restore(context_, saved).ok()) model_.truncate(context_, 0);
}

}  // namespace strata::spec
