// The MTP layer: its cells, which follow the sequence, and chains of guesses.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/scan.h"
#include "base/text.h"
#include "model/recorded.h"
#include "model/target.h"

namespace strata::model {
namespace {

float softmax_probability(std::span<const float> logits, std::int64_t pick) {
    const float of_pick = logits[static_cast<std::size_t>(pick)];
    return static_cast<float>(1.0 / sum_of_exponentials(logits, of_pick));
}

}  // namespace

Workspace Target::shifted_residual(std::int64_t from, std::int64_t rows) const {
    Workspace work = at_.work.first_rows(rows);
    work.residual = at_.residual_with_waiting.rows_from(from, rows);
    return work;
}

Status Target::submit_mtp_cells(Sequence& sequence, const op::Table& ops, const MtpCells& run,
                                Forward::Start start, const LogitSink* logits) {
    Workspace work = shifted_residual(run.from, run.count);
    if (!run.tokens.empty()) work.tokens = run.tokens;
    Forward pass = forward(ops, work, start);
    AttentionLayerState& state = sequence.mtp_.attention;
    pass.mtp_fuse(work.tokens);
    if (logits == nullptr) {
        pass.remember(weights_.mtp->layer, state);
        return Ok{};
    }
    pass.attention(weights_.mtp->layer, state, false);
    pass.experts(weights_.mtp->layer);
    pass.mix(weights_.mtp->mixer);
    // A head of some tokens alone is for drafts.
    const bool whole = weights_.mtp->token_of_row.empty();
    return sink_logits(pass, 0, run.count, whole ? weights_.mtp->head : weights_.head, *logits);
}

// From rows `run.from` on of the residual buffer with its waiting row.
Status Target::run_mtp_cells(Sequence& sequence, const op::Table& ops, const MtpCells& run,
                             const LogitSink* logits) {
    const auto tokens = sequence.tokens()
                            .subspan(static_cast<std::size_t>(run.first + 1))
                            .first(static_cast<std::size_t>(run.count));
    if (queue_->records() && run.count <= kWindowRowsMax && logits == nullptr && &ops == &ops_) {
        tell_pass(run.first, 0, tokens);
        MtpCells told = run;
        told.tokens = {at_.told_pass->tokens.data(), run.count};
        const std::int64_t bound = bound_of(run.first + run.count, sequence.context());
        key_ = {static_cast<std::int64_t>(Recorded::mtp_cells), run.count, run.from, bound};
        sequence.mark_mtp(key_);
        const Forward::Start start{bound - run.count, &at_.told_pass->first};
        queue_->run(key_, [&] {
            static_cast<void>(submit_mtp_cells(sequence, ops, told, start, nullptr));
        });
    } else {
        upload_tokens(tokens);
        STRATA_TRY(submit_mtp_cells(sequence, ops, run, {run.first}, logits));
    }
    AttentionLayerState& state = sequence.mtp_.attention;
    std::swap(state.raw_now, state.raw_next);
    return Ok{};
}

// Rows of a window wait where there is room; step() has seen to it. Else the residual buffer holds
// the waiting row, then the rows just committed, and cells are run over it in place for every row
// but the last, which waits in turn.
Status Target::keep_mtp_rows(Sequence& sequence, std::int64_t rows, const LogitSink* logits) {
    MtpState& mtp = sequence.mtp_;
    const auto bytes = [](float* values) { return reinterpret_cast<std::byte*>(values); };
    const std::size_t row_bytes = static_cast<std::size_t>(config_.stream_width()) * sizeof(float);
    const MatrixView<float>& buffer = at_.residual_with_waiting;
    if (sequence.pending_traced_ && logits == nullptr) {
        STRATA_CHECK(mtp.waiting_rows + rows <= mtp.waiting.rows);
        device_->copy(*queue_, bytes(mtp.waiting.row(mtp.waiting_rows)), bytes(buffer.row(1)),
                      static_cast<std::size_t>(rows) * row_bytes);
        mtp.waiting_rows += rows;
        return Ok{};
    }
    STRATA_CHECK(mtp.waiting_rows <= 1);
    const std::int64_t before = sequence.length() - rows;
    const std::int64_t from = mtp.waiting_rows == 0 ? 1 : 0;
    device_->copy(*queue_, bytes(buffer.data), bytes(mtp.waiting.data), row_bytes);
    if (rows > from) {
        const op::Table& ops = sequence.pending_traced_ ? ops_ : ops_.for_prompts();
        const MtpCells run{std::max<std::int64_t>(before - 1, 0), rows - from, from};
        STRATA_TRY(run_mtp_cells(sequence, ops, run, logits));
    }
    device_->copy(*queue_, bytes(mtp.waiting.data), bytes(buffer.row(rows)), row_bytes);
    mtp.waiting_rows = 1;
    return Ok{};
}

void Target::catch_up(Sequence& sequence) {
    MtpState& mtp = sequence.mtp_;
    const auto bytes = [](float* values) { return reinterpret_cast<std::byte*>(values); };
    const std::size_t row_bytes = static_cast<std::size_t>(config_.stream_width()) * sizeof(float);
    std::int64_t done = 0;
    while (done + 1 < mtp.waiting_rows) {
        const std::int64_t now = std::min({mtp.waiting_rows - 1 - done, kWindowRowsMax, rows_max_});
        device_->copy(*queue_, bytes(at_.residual_with_waiting.data), bytes(mtp.waiting.row(done)),
                      static_cast<std::size_t>(now) * row_bytes);
        const std::int64_t first = sequence.length() - mtp.waiting_rows + done;
        static_cast<void>(run_mtp_cells(sequence, ops_, {first, now, 0}, nullptr));
        done += now;
    }
    if (done == 0) return;
    device_->copy(*queue_, bytes(mtp.waiting.data), bytes(mtp.waiting.row(done)), row_bytes);
    mtp.waiting_rows = 1;
}

Result<MtpDraft> Target::draft(Sequence& sequence, std::int32_t anchor, std::int64_t guesses,
                               float confidence_min, const MtpChoice& choice) {
    STRATA_CHECK(!sequence.stepping());
    STRATA_TRY(weights_.residency.all_in_slots());
    STRATA_TRY(check_token(anchor));
    if (!sequence.options().mtp) {
        return STRATA_ERROR("MTP guesses were asked for of a sequence that keeps no MTP cells");
    }
    if (sequence.length() == 0) {
        return STRATA_ERROR("a draft was asked for after 0 tokens, wanted at least 1");
    }
    const std::int64_t last = sequence.length() - 1;
    if (guesses < 1 || last + guesses > sequence.context()) {
        return STRATA_ERROR(guesses, " guesses were asked for after ", sequence.length(),
                            " tokens, wanted 1 to ", sequence.context() - last);
    }
    MtpChain chain = make_chain(sequence, anchor, choice);
    MtpDraft draft;
    logits_.clear();
    logits_on_device_ = 0;
    const std::int64_t at_once = guesses_at_once(confidence_min, choice);
    bool more = true;
    while (more && draft.computed < guesses) {
        const std::int64_t count = std::min(guesses - draft.computed, at_once);
        tell_guess(draft, chain, choice);
        run_chain(sequence, chain, draft.computed, count);
        const bool whole = (choice.pick && !chain.told) || choice.keep_logits;
        if (whole) take_guess_logits(chain.head.rows);
        draft.computed += count;
        STRATA_TRY(status());
        more = take_guesses(draft, chain, guesses, confidence_min, choice);
    }
    const std::int64_t width = chain.head.rows;
    const auto kept = choice.keep_logits ? static_cast<std::int64_t>(draft.path.size()) : 0;
    draft.logits = {logits_.data(), kept, width};
    return draft;
}

std::int64_t Target::guesses_at_once(float confidence_min, const MtpChoice& choice) const {
    // The next guess follows what the host draws.
    if (choice.pick || choice.keep_logits) return 1;
    if (!choice.go_on && confidence_min <= 0) return kMtpChainMax;
    return queue_->records() ? std::clamp<std::int64_t>(choice.at_once, 1, kMtpChainMax) : 1;
}

// Where work is recorded, cells that the chain needs are run with its first guesses, as far as they
// fit a pass.
Target::MtpChain Target::make_chain(Sequence& sequence, std::int32_t anchor,
                                    const MtpChoice& choice) {
    const MtpState& mtp = sequence.mtp_;
    const std::int64_t cells = mtp.waiting_rows - 1;
    const bool together = queue_->records() && cells <= std::min(kWindowRowsMax, rows_max_);
    if (!together) catch_up(sequence);
    MtpChain chain{.state = mtp.attention,
                   .work = shifted_residual(0, 1),
                   .first = sequence.length() - 1,
                   .raw = mtp.attention.raw_now,
                   .cells = {},
                   .next = anchor,
                   .head = weights_.mtp->head,
                   .drawn = static_cast<bool>(choice.pick)};
    if (together && cells > 0) {
        chain.cells = {chain.first - cells, cells, 0, {at_.told_chain->cell_tokens.data(), cells}};
        chain.raw = mtp.attention.raw_next;
    }
    if (choice.token_end > 0 && chain.head.data == weights_.head.data) {
        chain.head.rows = std::min<std::int64_t>(chain.head.rows, choice.token_end);
    }
    // The chain's own history of raw index rows: the committed one stays.
    chain.state.raw_now = mtp.draft_raw;
    chain.state.raw_next = mtp.draft_raw;
    return chain;
}

void Target::submit_chain_start(Sequence& sequence, const MtpChain& chain, Forward::Start cells) {
    const MtpState& mtp = sequence.mtp_;
    const auto copy = [&](float* to, const float* from, std::int64_t count) {
        device_->copy(*queue_, reinterpret_cast<std::byte*>(to),
                      reinterpret_cast<const std::byte*>(from),
                      static_cast<std::size_t>(count) * sizeof(float));
    };
    const std::int64_t width = config_.stream_width();
    if (chain.cells.count > 0) {
        copy(at_.residual_with_waiting.data, mtp.waiting.data, chain.cells.count * width);
        static_cast<void>(submit_mtp_cells(sequence, ops_, chain.cells, cells, nullptr));
        copy(mtp.waiting.data, mtp.waiting.row(chain.cells.count), width);
    }
    copy(mtp.draft_raw, chain.raw, (config_.index_ratio - 1) * config_.index_dim);
    copy(chain.work.residual.data, mtp.waiting.data, width);
}

void Target::tell_chain(const Sequence& sequence, const MtpChain& chain, std::int64_t first) {
    ToldChain told;
    std::iota(told.first.begin(), told.first.end(), first);
    told.first_cell = chain.cells.first;
    const auto after = static_cast<std::size_t>(chain.cells.first + 1);
    std::copy_n(sequence.tokens().begin() + static_cast<std::ptrdiff_t>(after), chain.cells.count,
                told.cell_tokens.begin());
    told.chain.front() = chain.next;
    device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.told_chain),
                    std::as_bytes(std::span(&told, 1)));
}

void Target::run_recorded_chain(Sequence& sequence, const MtpChain& chain, std::int64_t done,
                                std::int64_t count) {
    const std::int64_t first = chain.first + done;
    tell_chain(sequence, chain, first);
    const std::int64_t bound = bound_of(first + count, sequence.context());
    key_ = {static_cast<std::int64_t>(Recorded::mtp_chain), count, bound, chain.head.rows,
            chain.told    ? 2 + chain.filters
            : chain.drawn ? 1
                          : 0};
    if (done == 0) {
        key_.push_back(chain.cells.count);
        sequence.mark_mtp(key_);
    } else {
        sequence.mark(key_);
    }
    queue_->run(key_, [&] {
        if (done == 0) {
            submit_chain_start(sequence, chain,
                               {bound - chain.cells.count, &at_.told_chain->first_cell});
        }
        submit_chain(chain, {bound - 1, at_.told_chain->first.data()}, count);
    });
}

void Target::run_chain(Sequence& sequence, const MtpChain& chain, std::int64_t done,
                       std::int64_t count) {
    if (queue_->records()) {
        run_recorded_chain(sequence, chain, done, count);
    } else {
        if (done == 0) submit_chain_start(sequence, chain, {});
        device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.told_chain->chain.data()),
                        std::as_bytes(std::span(&chain.next, 1)));
        submit_chain(chain, {chain.first + done}, count);
    }
    if (done == 0 && chain.cells.count > 0) {
        AttentionLayerState& state = sequence.mtp_.attention;
        std::swap(state.raw_now, state.raw_next);
        sequence.mtp_.waiting_rows = 1;
    }
    picked_.resize(static_cast<std::size_t>(count));
    if (chain.drawn && !chain.told) return;
    device_->download(*queue_, std::as_writable_bytes(std::span(picked_)),
                      reinterpret_cast<const std::byte*>(at_.picked.data));
    if (!chain.told) return;
    take_drawn(1);
    device_->download(*queue_, std::as_writable_bytes(std::span(&best_, 1)),
                      reinterpret_cast<const std::byte*>(at_.best.data));
}

void Target::submit_chain(const MtpChain& chain, Forward::Start start, std::int64_t count) {
    const MtpWeights& weights = *weights_.mtp;
    AttentionLayerState state = chain.state;
    Workspace work = chain.work;
    const MatrixView<float> logits{at_.logits.data, 1, chain.head.rows};
    std::int32_t* const chain_tokens = at_.told_chain->chain.data();
    for (std::int64_t i = 0; i < count; ++i) {
        work.tokens = {chain_tokens + i, 1};
        Forward pass = forward(ops_, work, start);
        pass.mtp_fuse(work.tokens);
        pass.attention(weights.layer, state, false);
        pass.experts(weights.layer);
        pass.mix(weights.mixer);
        pass.head(0, chain.head, logits);
        if (chain.drawn && !chain.told) continue;
        op::Pick pick;
        pick.logits = logits;
        pick.token_of_row = weights.token_of_row_on_device;
        pick.picked = {at_.picked.data + i, 1};
        pick.tokens = {chain_tokens + i + 1, 1};
        if (chain.told) pick.best = at_.best;
        ops_.pick(pick, *queue_);
        if (chain.told) submit_draw(logits, pick.token_of_row, chain.filters);
        // Where the next one stands: read from memory, or known.
        if (start.first_at != nullptr) {
            ++start.first_at;
        } else {
            ++start.first;
        }
    }
}

void Target::tell_guess(const MtpDraft& draft, MtpChain& chain, const MtpChoice& choice) {
    if (!choice.draws || !chain.drawn) return;
    const bool can = queue_->records() && !choice.keep_logits;
    const Draws* draws = can ? choice.draws(draft.path) : nullptr;
    chain.told = draws != nullptr;
    if (draws == nullptr) return;
    chain.filters = draws->filters();
    tell_draws(*draws);
}

void Target::take_guess_logits(std::int64_t rows) {
    const auto width = static_cast<std::size_t>(rows);
    grow(logits_, logits_.size() + width);
    device_->download(*queue_, std::as_writable_bytes(std::span(logits_).last(width)),
                      reinterpret_cast<const std::byte*>(at_.logits.data));
}

Result<bool> Target::draw_told(const MtpDraft& draft, const MtpChoice& choice) {
    const op::Picked& largest = picked_.back();
    if (std::isnan(largest.confidence) || drawn_.front().token < 0) return false;
    STRATA_ASSIGN(const std::optional<std::int32_t> token,
                  choice.pick_of({largest, drawn_}, draft.path));
    if (!token) return false;
    const auto drawn = std::ranges::find(drawn_, *token, &op::Drawn::token);
    STRATA_CHECK(drawn != drawn_.end());
    picked_.back() = {*token, largest.confidence * std::exp(drawn->logit - best_.logit)};
    return true;
}

Status Target::draw_guess(const MtpDraft& draft, const MtpChain& chain, const MtpChoice& choice) {
    if (chain.told) {
        STRATA_ASSIGN(const bool told, draw_told(draft, choice));
        if (told) return Ok{};
        take_guess_logits(chain.head.rows);
    }
    const std::span<const std::int32_t> tokens = weights_.mtp->token_of_row;
    const auto logits = std::span(logits_).last(static_cast<std::size_t>(chain.head.rows));
    STRATA_ASSIGN(const std::int32_t token, choice.pick(logits, tokens, draft.path));
    const std::int64_t row =
        tokens.empty() ? token
                       : std::lower_bound(tokens.begin(), tokens.end(), token) - tokens.begin();
    picked_.back() = {token, softmax_probability(logits, row)};
    return Ok{};
}

bool Target::take_guesses(MtpDraft& draft, MtpChain& chain, std::int64_t guesses,
                          float confidence_min, const MtpChoice& choice) {
    const bool drawn = !choice.pick || draw_guess(draft, chain, choice).ok();
    for (const op::Picked& guess : picked_) {
        ++draft.judged;
        if (!drawn || !(guess.confidence >= confidence_min)) return false;
        draft.path.push_back(guess.token);
        draft.confidence.push_back(guess.confidence);
        chain.next = guess.token;
        const bool last = std::ssize(draft.path) == guesses;
        if (!last && choice.go_on && !choice.go_on(draft.path, draft.confidence)) return false;
    }
    return true;
}

}  // namespace strata::model
