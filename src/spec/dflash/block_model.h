// The DFlash2 draft as a model: committed rows of its target go into a context, and from it and the
// last committed token a block of guesses is computed at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/carver.h"
#include "device/device.h"
#include "gguf/reader.h"
#include "model/target.h"
#include "op/table.h"
#include "spec/dflash/config.h"
#include "spec/dflash/context.h"
#include "spec/dflash/waiting.h"
#include "spec/dflash/weights.h"

namespace strata::dflash {

struct DraftRequest {
    std::int64_t position = 0;  // of the anchor: how many tokens are committed and were run
    std::int32_t anchor = 0;    // the last committed token, which the target has not run
    std::int64_t rows = 0;      // the anchor's included: 2 to the block size
    float confidence_min = 0;   // the draft ends before the first guess below it
    // How each guess is drawn from its candidates (op/dflash_select.h); null: the one of largest
    // score is it. With them there are at most op::kDrawRowsMax guesses.
    const model::Draws* draws = nullptr;
    bool keep_scores = true;  // Guess::candidates and scores are wanted
};

// Committed rows of the target, as BlockModel::inject takes them, in the device's memory.
struct Rows {
    std::int64_t first = 0;
    MatrixView<const float> features;
};

// One draft. It may be empty.
struct Guess {
    std::vector<std::int32_t> path;
    std::vector<float> confidence;  // softmax over the row's candidates at the pick
    // A row a guess, where they are kept: tokens by logit, largest first, and their scores.
    std::int64_t width = 0;
    std::vector<std::int32_t> candidates;
    std::vector<float> scores;

    // Drops all guesses but the first `count`.
    void keep(std::size_t count) {
        path.resize(count);
        confidence.resize(count);
        candidates.resize(count * static_cast<std::size_t>(width));
        scores.resize(count * static_cast<std::size_t>(width));
    }
};

// Owns the draft's file and weights; contexts are the caller's. Calls are not concurrent.
class BlockModel {
  public:
    // `target`, `device` and its `ops` outlive it; its work takes turns with that of the target's
    // steps. `rows_max` bounds the rows of one inject. Errors: as config_from_gguf, check_target
    // and Weights::bind; a device that has no kernels for block drafts; no memory.
    static Result<std::unique_ptr<BlockModel>> load(gguf::File file, model::Target& target,
                                                    device::Device& device, const op::Table& ops,
                                                    std::int64_t rows_max);

    // Bytes that load() allocates beside the weights; fewer with a head of its own for less than
    // the whole vocabulary.
    static std::uint64_t workspace_bytes(const Config& config, std::int64_t rows_max);

    const Config& config() const { return config_; }
    const gguf::File& file() const { return file_; }

    Result<Context> make_context(const ContextOptions& options) {
        return Context::create(config_, *device_, *queue_, options);
    }
    void truncate(Context& context, std::int64_t length) { context.truncate(length, *queue_); }
    // The cells as bytes, and back. Error, which leaves the cells as they were: bytes that this
    // draft did not save of a context of the same options.
    std::string save(const Context& context);
    Status restore(Context& context, std::string_view saved);

    // Rows first .. of the target, just committed: `features` [T, taps * D] are what
    // model::StepResult has for config().target_layers.
    void inject(Context& context, std::int64_t first, MatrixView<const float> features);
    // The same of features in the device's memory, of which up to kWindowRowsMax rows are a window.
    void inject_on_device(Context& context, const Rows& rows);

    // Memory for rows of features that wait there.
    Result<Waiting> make_waiting(std::int64_t rows) {
        return Waiting::create(*device_, *queue_, config_.feature_width(), rows);
    }

    // After `fresh` rows were put into the context, of which a window goes there in one piece of
    // work with the guesses; else nothing in the context changes. Errors, which leave it as it was:
    // an anchor outside the vocabulary, rows out of range.
    Result<Guess> draft(Context& context, const DraftRequest& request, const Rows& fresh = {});

    // Feature values that were not finite and counted as 0, since load. Waits for the queue.
    std::int64_t features_replaced();

  private:
    // Device memory that every call writes.
    struct Workspace {
        MatrixView<float> features;  // [rows_max, taps * D]
        VectorView<std::int32_t> replaced;
        // What is told of an injection and a draft: two positions, then the anchor, which begins
        // the block's tokens, then how guesses are drawn.
        std::int64_t* positions = nullptr;
        VectorView<std::int32_t> tokens;  // [block]
        op::DrawRule* rule = nullptr;
        VectorView<op::Penalized> penalized;  // [kPenalizedMax]
        MatrixView<float> hidden;             // [block, D]
        MatrixView<float> logits;             // [block - 1, N]
        // What comes back of a draft, in one piece: replaced_now, walked, path, confidence,
        // candidates, scores.
        VectorView<std::int32_t> results;
        VectorView<std::int32_t> replaced_now;  // [kWindowRowsMax]
        std::int32_t* walked = nullptr;
        VectorView<std::int32_t> path;
        VectorView<float> confidence;
        MatrixView<std::int32_t> candidates;  // [block - 1, K]
        MatrixView<float> scores;
        VectorView<double> frequencies;
    };

    BlockModel(gguf::File file, device::Device& device, const op::Table& ops)
        : file_(std::move(file)), device_(&device), ops_(ops) {}
    Status prepare(std::int64_t rows_max);
    op::DflashShape shape() const;
    Status check(const DraftRequest& request) const;
    static Workspace lay_out(const Config& config, std::int64_t head_rows, std::int64_t rows_max,
                             device::Carver& carver);
    // Features that are on the device, of a window or of a prompt.
    void run_inject(Context& context, std::int64_t first, MatrixView<const float> features,
                    bool window);
    void submit_inject(Context& context, model::Forward::Start start,
                       MatrixView<const float> features, bool window);
    // Takes what the last injection replaced into the count, where that is still to be done.
    void count_replaced(std::span<const std::int32_t> replaced);
    // What recorded work is told: where the first row injected stands, and the block, and its
    // anchor.
    struct Told {
        std::int64_t injected = 0;
        std::int64_t block = 0;
        std::int32_t anchor = 0;
        const model::Draws* draws = nullptr;
    };
    void upload_told(const Told& told);
    // Fresh rows, at most a window, the block, its logits and its guesses.
    void run_block(Context& context, const DraftRequest& request, const Rows& fresh);
    void submit_block(const Context& context, model::Forward::Start start, std::int64_t rows,
                      bool drawn);
    // `count` guesses, the first of which follows the anchor.
    void submit_select(std::int64_t count, bool drawn);
    // The guesses that were selected last.
    Guess take(std::int64_t count, bool scores);

    gguf::File file_;
    device::Device* device_;
    op::Table ops_;
    device::Queue* queue_ = nullptr;  // the target's
    std::int64_t number_ = 0;         // in keys of recorded work
    std::vector<std::int64_t> key_;
    Config config_;
    Weights weights_;
    device::Buffer memory_;
    Workspace work_;
    std::string mark_;             // 8 bytes that tell this draft's weights from another's
    std::vector<std::byte> told_;  // rule and penalized tokens on their way
    std::vector<std::int32_t> results_;
    std::int64_t features_replaced_ = 0;
    std::int64_t uncounted_rows_ = 0;  // of the last injection, in replaced_now
};

}  // namespace strata::dflash
