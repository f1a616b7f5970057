// Guesses of a DFlash2 draft.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "spec/dflash/block_model.h"
#include "spec/drafter.h"

namespace strata::spec {

// Rows are put into the context when a guess needs them, many at once: a draft that does not guess
// for a while costs next to nothing.
class DflashDrafter final : public Drafter {
  public:
    // `model` outlives the drafter. A draft ends before the first guess whose confidence is below
    // `confidence_min`. Error: no memory.
    static Result<std::unique_ptr<DflashDrafter>> create(dflash::BlockModel& model,
                                                         const dflash::ContextOptions& options,
                                                         float confidence_min);

    // Bytes that create() allocates.
    static std::uint64_t bytes(const dflash::Config& config, const dflash::ContextOptions& options);

    std::string_view name() const override { return "dflash"; }
    Result<Guesses> guess(const GuessRequest& request) override;
    std::int64_t behind() const override { return pending_.count(); }
    void reset() override;

    // Of a prompt only the rows that a layer can still see at its end.
    void want(const StepRows& rows, model::StepRequest& request) override;
    Status keep(std::int64_t first, std::span<const std::int32_t> tokens,
                const model::StepResult& result) override;

    std::string save() override;
    void restore(std::string_view saved) override;

  private:
    DflashDrafter(dflash::BlockModel& model, dflash::Context context, dflash::Waiting pending,
                  std::int64_t reach, float confidence_min)
        : model_(model),
          context_(std::move(context)),
          pending_(std::move(pending)),
          reach_(reach),
          confidence_min_(confidence_min) {}
    void inject_pending();
    // For rows at `position` on, where that is possible: at the cost of waiting rows that no layer
    // sees from position `seen_by` on, or by taking all into the context.
    void make_room(std::int64_t position, std::int64_t count, std::int64_t seen_by);
    // Forgets waiting rows that no layer sees from position `end` on.
    void drop_unseen(std::int64_t end);

    dflash::BlockModel& model_;
    dflash::Context context_;
    dflash::Waiting pending_;  // rows kept and not yet injected
    std::int64_t reach_;       // the most positions that a layer's ring holds
    float confidence_min_;
    std::int64_t seen_from_ = 0;  // the first position wanted of the step under way
};

}  // namespace strata::spec
