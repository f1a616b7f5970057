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

}  // namespace

Result<std::unique_ptr<DflashDrafter>> DflashDrafter::create(dflash::BlockModel& model,
                                                             const dflash::ContextOptions& options,
                                                             float confidence_min) {
    STRATA_ASSIGN(dflash::Context context, model.make_context(options));
    return std::unique_ptr<DflashDrafter>(
        new DflashDrafter(model, std::move(context), confidence_min));
}

DflashDrafter::DflashDrafter(dflash::BlockModel& model, dflash::Context context,
                             float confidence_min)
    : model_(model), context_(std::move(context)), confidence_min_(confidence_min) {
    for (const op::DflashCells& cells : context_.cells()) reach_ = std::max(reach_, cells.slots);
    const auto row_bytes =
        model_.config().feature_width() * static_cast<std::int64_t>(sizeof(float));
    pending_max_ = std::clamp(kPendingBytes / row_bytes, kPendingRowsMin,
                              std::max(kPendingRowsMin, 2 * reach_));
}

void DflashDrafter::reset() {
    pending_.clear();
    model_.truncate(context_, 0);
}

void DflashDrafter::want(const StepRows& rows, model::StepRequest& request) {
    seen_from_ = std::max(rows.first, rows.end - reach_);
    if (seen_from_ < rows.first + rows.count) {
        request.feature_layers = model_.config().target_layers;
    }
}

Status DflashDrafter::keep(std::int64_t first, std::span<const std::int32_t> tokens,
                           const model::StepResult& result) {
    const std::int64_t width = model_.config().feature_width();
    const std::int64_t end = first + static_cast<std::int64_t>(tokens.size());
    const std::int64_t from = std::max(first, seen_from_);
    if (from >= end) return Ok{};
    STRATA_CHECK(result.features.cols == width && result.features.rows >= end - first);
    const MatrixView<const float> rows = result.features.rows_from(from - first, end - from);
    if (!pending_.empty()) {
        const auto waiting = static_cast<std::int64_t>(pending_.size()) / width;
        if (waiting + rows.rows > pending_max_) drop_unseen(end);
        const auto left = static_cast<std::int64_t>(pending_.size()) / width;
        if (left + rows.rows > pending_max_ || pending_first_ + left != from) inject_pending();
    }
    if (rows.rows > pending_max_) {
        model_.inject(context_, from, rows);
        return Ok{};
    }
    if (pending_.empty()) pending_first_ = from;
    pending_.insert(pending_.end(), rows.data, rows.data + rows.size());
    return Ok{};
}

void DflashDrafter::drop_unseen(std::int64_t end) {
    const std::int64_t width = model_.config().feature_width();
    const auto waiting = static_cast<std::int64_t>(pending_.size()) / width;
    const std::int64_t unseen = std::clamp(end - reach_ - pending_first_, std::int64_t{0}, waiting);
    pending_.erase(pending_.begin(), pending_.begin() + unseen * width);
    pending_first_ += unseen;
}

void DflashDrafter::inject_pending() {
    const std::int64_t width = model_.config().feature_width();
    const auto rows = static_cast<std::int64_t>(pending_.size()) / width;
    if (rows > 0) model_.inject(context_, pending_first_, {pending_.data(), rows, width});
    pending_.clear();
}

Result<Guesses> DflashDrafter::guess(const GuessRequest& request) {
    inject_pending();
    dflash::DraftRequest block;
    block.position = static_cast<std::int64_t>(request.text.size()) - 1;
    block.anchor = request.text.back();
    block.rows = std::min(request.count + 1, model_.config().block_size);
    block.confidence_min = confidence_min_;
    Continued before(request.draw == nullptr ? std::span<const std::int32_t>() : request.text);
    if (request.draw != nullptr) {
        block.pick = [&](std::span<const std::int32_t> candidates, std::span<const float> scores,
                         std::span<const std::int32_t> chain) {
            return request.draw->draw_among(candidates, scores, before.by(chain));
        };
    }
    STRATA_ASSIGN(dflash::Guess guess, model_.draft(context_, block));
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
