// Device memory that the steps of a target share.
#pragma once

#include <cstdint>

#include "device/carver.h"
#include "model/config.h"
#include "model/forward.h"
#include "op/draw.h"
#include "op/pick.h"

namespace strata::model {

// Guesses of the MTP layer that are computed one after another without the host.
inline constexpr std::int64_t kMtpChainMax = 16;

// Rows of features that a recorded step may leave, of all layers together.
inline constexpr std::int64_t kRecordedFeatureRows = 256;

struct StepMemory {
    // Of rows_max rows; the residual has one row more before them, for the MTP layer's waiting
    // cell.
    Workspace work;
    MatrixView<float> residual_with_waiting;
    MatrixView<float> logits;  // [kWindowRowsMax, V]
    MatrixView<float> mean;    // [at least rows_max and kRecordedFeatureRows, D]
    // What recorded work is told, one after the other: where the rows of a pass, or of each guess,
    // stand; where the first of the cells that come before a chain stands, and their tokens; the
    // token before the chain, whose guesses follow it.
    VectorView<std::int64_t> first;  // [kMtpChainMax]
    std::int64_t* first_cell = nullptr;
    VectorView<std::int32_t> cell_tokens;  // [kWindowRowsMax]
    VectorView<std::int32_t> chain;        // [kMtpChainMax + 1]
    VectorView<op::Picked> picked;         // [kMtpChainMax]
    MatrixView<op::Candidate> best;        // [kWindowRowsMax, kCandidatesMax]
    VectorView<float> mass;                // [kWindowRowsMax]
    float* temperature = nullptr;          // of the mass
    MatrixView<op::Drawn> drawn;           // [kWindowRowsMax, 1 + kDrawnMax]
    op::DrawRule* draw_rule = nullptr;     // and right after it
    op::Penalized* penalized = nullptr;    // [kPenalizedMax]
    MatrixView<double> inverse_frequency;
    std::byte* ngram_read = nullptr;  // the n-gram rows of a step, as stored

    // Lays it out for steps of `rows_max` rows; `ngram_bytes` for rows read from the file.
    void lay_out(const Config& config, std::int64_t rows_max, std::int64_t ngram_bytes,
                 device::Carver& pieces);
};

// Of rows of the n-gram table that a step of `rows_max` rows reads from the file.
std::int64_t ngram_bytes(const Config& config, std::int64_t rows_max, std::int64_t row_bytes);

}  // namespace strata::model
