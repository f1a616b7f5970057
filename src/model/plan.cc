#include "model/plan.h"

#include <algorithm>

#include "base/text.h"
#include "model/step_memory.h"
#include "model/weights.h"

namespace strata::model {
namespace {

// What ops take for a while grows with the rows of a step: rows of the widest products, twice.
constexpr std::uint64_t kScratchRowWidths = 24;
// Captured graphs, the driver's code and context, and what rounding up leaves unused.
constexpr std::uint64_t kReserveBytes = std::uint64_t{768} << 20;

std::uint64_t workspace_bytes(const Config& config, std::int64_t rows_max) {
    StepMemory memory;
    device::Carver measure;
    memory.lay_out(config, rows_max, 0, measure);
    return measure.used();
}

std::uint64_t scratch_bytes(const Config& config, std::int64_t rows_max) {
    return static_cast<std::uint64_t>(rows_max) *
           static_cast<std::uint64_t>(config.stream_width()) * sizeof(float) * kScratchRowWidths;
}

std::uint64_t table_bytes(const gguf::File& file) {
    const gguf::Tensor* table = file.find_tensor("per_layer_token_embd.weight");
    return table == nullptr ? 0 : table->data.size();
}

// The longest context whose plan fits; 0: none.
std::int64_t longest_context(const gguf::File& file, const Config& config, PlanOptions options,
                             std::uint64_t available) {
    std::int64_t low = 0;
    std::int64_t high = options.sequence.context;
    while (low < high) {
        options.sequence.context = low + (high - low + 1) / 2;
        if (plan_memory(file, config, options).all() <= available) {
            low = options.sequence.context;
        } else {
            high = options.sequence.context - 1;
        }
    }
    return low;
}

std::string mib(std::uint64_t bytes) { return concat((bytes + (1u << 20) - 1) >> 20, " MiB"); }

}  // namespace

MemoryPlan plan_memory(const gguf::File& file, const Config& config, const PlanOptions& options) {
    MemoryPlan plan;
    plan.weights = weight_bytes(file, config) + (options.ngram_resident ? table_bytes(file) : 0);
    plan.state = Sequence::state_bytes(config, options.sequence);
    plan.workspace = workspace_bytes(config, options.rows_max);
    plan.drafter = options.drafter_context;
    for (const gguf::File* file_of_drafter : options.extra) {
        for (const gguf::Tensor& tensor : file_of_drafter->tensors()) {
            plan.drafter += tensor.data.size();
        }
    }
    plan.reserve = kReserveBytes + scratch_bytes(config, options.rows_max);
    return plan;
}

Status check_plan(const gguf::File& file, const Config& config, const PlanOptions& options,
                  std::uint64_t available) {
    const MemoryPlan plan = plan_memory(file, config, options);
    if (plan.all() <= available) return Ok{};
    const std::int64_t fits = longest_context(file, config, options, available);
    const std::string mend =
        fits > 0 ? concat("a context of ", fits, " tokens would fit")
                 : std::string("a file in fewer bits or a device with more memory is wanted");
    return STRATA_ERROR(quote(file.path()), " takes ", mib(plan.all()), " there: weights ",
                        mib(plan.weights), ", state of ", options.sequence.context, " tokens ",
                        mib(plan.state), ", workspace ", mib(plan.workspace), ", drafter ",
                        mib(plan.drafter), ", reserve ", mib(plan.reserve), "; ", mib(available),
                        " are free, and ", mend);
}

}  // namespace strata::model
