// Device memory that the steps of a target share.
#pragma once

#include <array>
#include <cstdint>

#include "device/carver.h"
#include "model/config.h"
#include "model/forward.h"
#include "op/accept.h"
#include "op/draw.h"
#include "op/pick.h"

namespace strata::model {

// Guesses of the MTP layer that are computed one after another without the host.
inline constexpr std::int64_t kMtpChainMax = 16;

// Rows of features that a recorded step may leave, of all layers together.
inline constexpr std::int64_t kRecordedFeatureRows = 256;

// What a recorded pass is told, in one transfer: where its first row stands, which row of
// FeaturePlace::rows its first row's features are, its tokens, and those that end a text.
struct ToldPass {
    std::int64_t first = 0;
    std::int64_t feature_row = 0;
    std::array<std::int32_t, kWindowRowsMax> tokens{};
    std::array<std::int32_t, op::kEndTokensMax> ends{};
};

// The same of a chain of guesses: where each stands; where the first of the cells that come before
// it stands, and their tokens; the token before the chain, after which its guesses are written.
struct ToldChain {
    std::array<std::int64_t, kMtpChainMax> first{};
    std::int64_t first_cell = 0;
    std::array<std::int32_t, kWindowRowsMax> cell_tokens{};
    std::array<std::int32_t, kMtpChainMax + 1> chain{};
};

struct StepMemory {
    // Of rows_max rows; the residual has one row more before them, for the MTP layer's waiting
    // cell.
    Workspace work;
    MatrixView<float> residual_with_waiting;
    MatrixView<float> logits;           // [kWindowRowsMax, V]
    MatrixView<float> mean;             // [at least rows_max and kRecordedFeatureRows, D]
    ToldPass* told_pass = nullptr;      // recorded work reads its tokens here, other work in `work`
    ToldChain* told_chain = nullptr;    // the chain is here where it is not recorded too
    std::int64_t* accepted = nullptr;   // rows of a window
    VectorView<op::Picked> picked;      // [kMtpChainMax]
    MatrixView<op::Candidate> best;     // [1, 1], of the last guess of a chain
    MatrixView<op::Drawn> drawn;        // [kWindowRowsMax, 1 + kDrawnMax]
    op::DrawRule* draw_rule = nullptr;  // and right after it
    op::Penalized* penalized = nullptr;  // [kPenalizedMax]
    MatrixView<double> inverse_frequency;
    std::byte* ngram_read = nullptr;  // the n-gram rows of a step, as stored

    // Lays it out for steps of `rows_max` rows; `ngram_bytes` for rows read from the file.
    void lay_out(const Config& config, std::int64_t rows_max, std::int64_t ngram_bytes,
                 device::Carver& pieces);
};

// Of rows of the n-gram table that a step of `rows_max` rows reads from the file.
std::int64_t ngram_bytes(const Config& config, std::int64_t rows_max, std::int64_t row_bytes);

}  // namespace strata::model
