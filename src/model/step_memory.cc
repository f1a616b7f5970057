#include "model/step_memory.h"

#include <algorithm>

#include "model/sequence.h"

namespace strata::model {

void StepMemory::lay_out(const Config& config, std::int64_t rows_max, std::int64_t ngram_bytes,
                         device::Carver& pieces) {
    residual_with_waiting = pieces.matrix<float>(rows_max + 1, config.stream_width());
    work.residual = residual_with_waiting.rows_from(1, rows_max);
    work.x = pieces.matrix<float>(rows_max, config.hidden);
    work.y = pieces.matrix<float>(rows_max, config.hidden);
    work.inject = pieces.matrix<float>(rows_max, config.streams);
    const std::int64_t heads = config.ngram.present() ? config.ngram.heads() : 0;
    work.ngram = pieces.matrix<float>(rows_max, heads * config.ngram.row_width);
    work.ngram_rows = pieces.matrix<std::int64_t>(rows_max, heads);
    work.tokens = pieces.vector<std::int32_t>(rows_max);
    work.chosen = pieces.matrix<std::int32_t>(rows_max, config.experts_active);
    ngram_read = pieces.take_bytes(ngram_bytes, 1);
    logits = pieces.matrix<float>(std::min(rows_max, kWindowRowsMax), config.vocabulary);
    mean = pieces.matrix<float>(std::max(rows_max, kRecordedFeatureRows), config.hidden);
    told_pass = pieces.take<ToldPass>(1);
    told_chain = pieces.take<ToldChain>(1);
    accepted = pieces.take<std::int64_t>(1);
    picked = pieces.vector<op::Picked>(kMtpChainMax);
    best = pieces.matrix<op::Candidate>(1, 1);
    drawn = pieces.matrix<op::Drawn>(kWindowRowsMax, 1 + op::kDrawnMax);
    static_assert(sizeof(op::DrawRule) % device::kBufferAlignment == 0);
    draw_rule = pieces.take<op::DrawRule>(1);
    penalized = pieces.take<op::Penalized>(op::kPenalizedMax);
    inverse_frequency = pieces.matrix<double>(1, config.rotary_dim / 2);
}

std::int64_t ngram_bytes(const Config& config, std::int64_t rows_max, std::int64_t row_bytes) {
    return config.ngram.present() ? rows_max * config.ngram.heads() * row_bytes : 0;
}

}  // namespace strata::model
