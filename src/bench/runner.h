// A model that steps are timed on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bench/mixed.h"
#include "bench/work.h"
#include "model/target.h"
#include "spec/dflash/block_model.h"
#include "strata/bench.h"

namespace strata::bench {

// One figure being taken: first a run that counts, then those that are timed.
struct Measured {
    std::int64_t rows = 0;
    std::int64_t steps = 0;   // of the counting run
    Work work;                // of all its steps
    double experts_read = 0;  // the sum over steps of the mean over layers
    std::uint64_t checksum = 0;
    std::int32_t top_token = 0;
    std::vector<double> ms;  // of a step, one mean a repeat

    WorkFigure figure(const MachineRates& rates) const;
};

class Runner {
  public:
    // For a sequence of `context` tokens, whose state is also saved once where `saves` is set.
    // Errors: as for Engine::load.
    static Result<Runner> load(const BenchOptions& options, std::int64_t rows_max,
                               std::int64_t context, bool saves);

    const model::Target& target() const { return *target_; }
    model::Target& target() { return *target_; }
    model::SequenceOptions sequence_options(std::int64_t context) const;
    op::CacheType cache() const { return cache_; }
    // The DFlash2 draft of BenchOptions; null: none was given.
    dflash::BlockModel* dflash() { return dflash_.get(); }
    bool has_mtp() const { return target_->config().mtp_layers > 0; }
    // That a draft must read, after so many tokens: of the block draft or the MTP layer.
    BytesRead draft_bytes(bool block, std::int64_t length, std::int64_t guesses) const;

    // As BenchOptions says.
    std::vector<std::int32_t> draw_tokens(std::int64_t count) const;

    // Reads a prompt in chunks, the logits of its last token at its end. Error: go_on(), asked
    // before each chunk, says no.
    Status read_prompt(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                       const std::function<bool()>& go_on, Measured* measured, double* ms);

    // Runs and commits `request`; adds its time to `ms`, its logits to the checksum, and where
    // `counted` is given what it read to that.
    Status step(model::Sequence& sequence, model::StepRequest request, Measured* counted,
                std::uint64_t& checksum, double& ms);

    // Of what the model runs on, measured now.
    Result<MachineRates> rates();

    // Of all steps so far.
    TableReads table_reads() const;

  private:
    explicit Runner(const BenchOptions& options) : options_(options) {}

    BenchOptions options_;
    bool gpu_ = false;
    op::CacheType cache_ = op::CacheType::f16;
    Backend backend_;
    std::unique_ptr<model::Target> target_;
    std::unique_ptr<dflash::BlockModel> dflash_;
    std::unique_ptr<WorkCount> count_;
    std::int64_t steps_ = 0;
};

// Error: `found` is not what the counting run computed.
Status check_same(const Measured& measured, std::uint64_t found);

}  // namespace strata::bench
