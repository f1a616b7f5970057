// The forward pass of model.md, written once over the vocabulary of ops: no loops over elements, no
// backend. A Forward is the means of one pass; it owns nothing.
#pragma once

#include <cstdint>
#include <span>

#include "device/device.h"
#include "model/config.h"
#include "model/sequence.h"
#include "model/weights.h"
#include "op/table.h"

namespace strata::model {

// Memory that a pass writes, for up to `rows` rows. Row r of every view is row r of the pass.
struct Workspace {
    MatrixView<float> residual;           // [rows, S*D]
    MatrixView<float> x;                  // [rows, D]: what a block reads
    MatrixView<float> y;                  // [rows, D]: what a block gives
    MatrixView<float> inject;             // [rows, S]: how much of y each stream gets
    MatrixView<float> ngram;              // [rows, DE]
    MatrixView<std::int64_t> ngram_rows;  // of ngram_table
    VectorView<std::int32_t> tokens;
    MatrixView<std::int32_t> chosen;  // [rows, k]: the experts of a layer, where they are asked for
    op::Weight ngram_table;           // the model's, or the rows of it that were read

    Workspace first_rows(std::int64_t rows) const;
};

class Forward {
  public:
    // Where the rows of a pass stand: as SparseAttention's first and first_at.
    struct Start {
        std::int64_t first = 0;
        const std::int64_t* first_at = nullptr;
    };

    // `work` has exactly the rows of the pass.
    Forward(const Config& config, const Weights& weights, const double* inverse_frequency,
            const op::Table& ops, device::Queue& queue, const Workspace& work, Start start)
        : config_(config),
          weights_(weights),
          inverse_frequency_(inverse_frequency),
          ops_(ops),
          queue_(queue),
          work_(work),
          start_(start) {}

    // How delta nets run, and whether the step may be kept in part.
    struct Mode {
        op::DeltaForm form = op::DeltaForm::recurrent;
        bool traced = false;
    };

    void embed();
    void add_ngram(NgramState& state, Mode mode);
    void delta_net(const LayerWeights& layer, DeltaLayerState& state, Mode mode);
    void attention(const LayerWeights& layer, AttentionLayerState& state, bool traced);
    // `keep_chosen`: leaves the experts that each row chose in the workspace.
    void experts(const LayerWeights& layer, bool keep_chosen = false);

    // Only what later rows need of an attention layer.
    void remember(const LayerWeights& layer, AttentionLayerState& state);

    // mean [rows, D] of the streams as the next block would read them; its rows `stride` apart, and
    // as op::StreamMean has it *row_at rows further on.
    void stream_mean(MatrixView<float> mean, std::int64_t stride,
                     const std::int64_t* row_at = nullptr);
    // Writes the last block's output into the residual, which is then whole, and reads x through a
    // mixer.
    void mix(const HyperConnectionWeights& mixer);
    // logits [rows, rows of head] of rows from .. from+rows-1 of x.
    void head(std::int64_t from, const op::Weight& head, MatrixView<float> logits);

    // Turns the residual into the MTP layer's input, given each row's next token.
    void mtp_fuse(VectorView<const std::int32_t> next_tokens);

  private:
    void read(const HyperConnectionWeights& weights);
    op::SparseAttention attention_op(const LayerWeights& layer, AttentionLayerState& state);

    const Config& config_;
    const Weights& weights_;
    const double* inverse_frequency_;
    const op::Table& ops_;
    device::Queue& queue_;
    Workspace work_;
    Start start_;
    // Set while y and inject hold a block's output that no read has written into the residual yet.
    bool unwritten_ = false;
};

}  // namespace strata::model
