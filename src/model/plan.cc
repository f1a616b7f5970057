#include "model/plan.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "model/step_memory.h"
#include "model/weights.h"

namespace strata::model {
namespace {

// What ops take for a while grows with the rows of a step: rows of the streams' width.
constexpr std::uint64_t kDeviceScratchWidths = 24;
constexpr std::uint64_t kHostScratchWidths = 4;
// Captured graphs, the driver's code and context, and what rounding up leaves unused; on the host
// the program, its libraries, the tokenizer, and scratch that does not grow with the rows.
constexpr std::uint64_t kDeviceReserve = std::uint64_t{768} << 20;
constexpr std::uint64_t kHostReserve = std::uint64_t{16} << 20;

std::uint64_t workspace_bytes(const Config& config, std::int64_t rows_max) {
    StepMemory memory;
    device::Carver measure;
    memory.lay_out(config, rows_max, 0, measure);
    return measure.used();
}

std::uint64_t reserve_bytes(const Config& config, std::int64_t rows_max, bool device) {
    const std::uint64_t row = static_cast<std::uint64_t>(config.stream_width()) * sizeof(float);
    const std::uint64_t scratch = static_cast<std::uint64_t>(rows_max) * row *
                                  (device ? kDeviceScratchWidths : kHostScratchWidths);
    return scratch + (device ? kDeviceReserve : kHostReserve);
}

std::uint64_t moment_bytes(const Config& config, const PlanOptions& options) {
    return saturating_add(Sequence::moment_bytes(config, options.sequence),
                          static_cast<std::uint64_t>(config.vocabulary) * sizeof(float));
}

// One state of the whole context: its tokens, the logits after them, what the rows left behind.
std::uint64_t checkpoint_bytes(const Config& config, const PlanOptions& options) {
    const std::int64_t rows = options.sequence.context;
    const std::uint64_t tokens = static_cast<std::uint64_t>(rows) * sizeof(std::int32_t);
    return saturating_add(saturating_add(moment_bytes(config, options), tokens),
                          Sequence::rows_bytes(config, options.sequence, rows));
}

// What is left of the host's memory for checkpoints; nothing: the plan does not fit.
std::optional<std::uint64_t> left_for_checkpoints(const MemoryPlan& plan, const MemoryRoom& room) {
    if (room.device && plan.all() > *room.device) return std::nullopt;
    const std::uint64_t taken = room.device ? 0 : plan.all();
    if (taken > room.host || plan.checkpoints > room.host - taken) return std::nullopt;
    return room.host - taken;
}

// The longest context whose plan fits; 0: none.
std::int64_t longest_context(const FileSizes& files, const Config& config, PlanOptions options,
                             const MemoryRoom& room) {
    std::int64_t low = 0;
    std::int64_t high = options.sequence.context;
    while (low < high) {
        options.sequence.context = low + (high - low + 1) / 2;
        if (left_for_checkpoints(plan_memory(files, config, options, room), room)) {
            low = options.sequence.context;
        } else {
            high = options.sequence.context - 1;
        }
    }
    return low;
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string mib(std::uint64_t bytes) {
    return concat(bytes / kMiB + (bytes % kMiB == 0 ? 0 : 1), " MiB");
}

// Never more than there is.
std::string whole_mib(std::uint64_t bytes) {
    if (bytes < kMiB) return concat(bytes, " bytes");
    return concat(bytes / kMiB, " MiB");
}

std::string there_is(const MemoryRoom& room) {
    const std::string host = whole_mib(room.host);
    const std::string of_host =
        room.host_is_set ? concat("--ram allows ", host) : concat(host, " are free");
    if (!room.device) return of_host;
    const std::string device = whole_mib(*room.device);
    return concat(
        room.device_is_set ? concat("--vram allows ", device) : concat(device, " are free there"),
        " and ", of_host, room.host_is_set ? "" : " in the host");
}

// What makes room where nothing can be done without.
std::string more_memory(const MemoryRoom& room) {
    const bool is_set = room.device ? room.device_is_set : room.host_is_set;
    if (!is_set) return "a file in fewer bits or a machine with more memory is wanted";
    return concat("a file in fewer bits or a larger ", room.device ? "--vram" : "--ram",
                  " is wanted");
}

// What makes room where no context does.
std::string other_remedy(const FileSizes& files, const Config& config, const PlanOptions& options,
                         const MemoryRoom& room) {
    FileSizes held = files;
    PlanOptions least = options;
    least.sequence.context = 1;
    const auto fits = [&] {
        return left_for_checkpoints(plan_memory(held, config, least, room), room).has_value();
    };
    if (options.checkpoints) least.checkpoints = 0;
    if (fits()) return "fewer bytes of checkpoints are wanted";
    least.ngram_cache = 0;
    if (fits()) return "fewer bytes of n-gram rows to keep are wanted";
    least.rows_max = std::min(least.rows_max, kWindowRowsMax);
    if (fits()) return "fewer tokens read at a time are wanted";
    held.drafters = 0;
    least.drafter_context = {};
    if (fits()) return "without the drafter it would fit";
    return more_memory(room);
}

Error does_not_fit(const FileSizes& files, const Config& config, const PlanOptions& options,
                   const MemoryPlan& plan, const MemoryRoom& room) {
    const std::int64_t longest = longest_context(files, config, options, room);
    const std::string mend = longest > 0 ? concat("a context of ", longest, " tokens would fit")
                                         : other_remedy(files, config, options, room);
    const std::uint64_t all = saturating_add(plan.all(), room.device ? 0 : plan.checkpoints);
    return STRATA_ERROR(quote(files.name), " takes ", mib(all),
                        room.device ? " of the device's memory" : " of memory", ": weights ",
                        mib(plan.weights), ", state of ", options.sequence.context, " tokens ",
                        mib(plan.state), ", workspace ", mib(plan.workspace), ", drafter ",
                        mib(plan.drafter), ", reserve ", mib(plan.reserve),
                        room.device ? "; of the host's for checkpoints " : ", checkpoints ",
                        mib(plan.checkpoints), "; ", there_is(room), ", and ", mend);
}

}  // namespace

std::uint64_t MemoryPlan::all() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t part : {weights, state, workspace, drafter, reserve}) {
        sum = saturating_add(sum, part);
    }
    return sum;
}

FileSizes file_sizes(const gguf::File& file, const Config& config,
                     const std::vector<const gguf::File*>& drafters) {
    FileSizes sizes;
    sizes.name = file.path();
    sizes.weights = weight_bytes(file, config);
    const gguf::Tensor* table = file.find_tensor("per_layer_token_embd.weight");
    if (table != nullptr) sizes.ngram_table = table->data.size();
    for (const gguf::File* drafter : drafters) {
        for (const gguf::Tensor& tensor : drafter->tensors()) {
            sizes.drafters += tensor.data.size();
        }
    }
    return sizes;
}

MemoryPlan plan_memory(const FileSizes& files, const Config& config, const PlanOptions& options,
                       const MemoryRoom& room) {
    MemoryPlan plan;
    plan.weights = files.weights;
    if (room.device && options.ngram_resident) plan.weights += files.ngram_table;
    plan.state = Sequence::state_bytes(config, options.sequence);
    plan.workspace = workspace_bytes(config, options.rows_max);
    if (!room.device) plan.workspace = saturating_add(plan.workspace, options.ngram_cache);
    plan.drafter = files.drafters;
    if (options.drafter_context) {
        plan.drafter =
            saturating_add(plan.drafter, options.drafter_context(options.sequence.context));
    }
    plan.reserve = reserve_bytes(config, options.rows_max, room.device.has_value());
    plan.checkpoints = options.checkpoints.value_or(checkpoint_bytes(config, options));
    return plan;
}

Result<Fit> fit_memory(const FileSizes& files, const Config& config, const PlanOptions& options,
                       const MemoryRoom& room) {
    PlanOptions taken = options;
    MemoryPlan plan = plan_memory(files, config, taken, room);
    auto left = left_for_checkpoints(plan, room);
    Fit fit;
    const std::int64_t asked = options.sequence.context;
    if (!left) {
        const std::int64_t longest = longest_context(files, config, options, room);
        taken.sequence.context = longest / kContextStep * kContextStep;
        if (!options.may_shrink || taken.sequence.context < std::min(kContextLeast, asked)) {
            return does_not_fit(files, config, options, plan, room);
        }
        fit.note = concat("the context is ", taken.sequence.context, " tokens, not ", asked,
                          ": more does not fit, since ", there_is(room));
        plan = plan_memory(files, config, taken, room);
        left = left_for_checkpoints(plan, room);
    }
    if (!options.checkpoints) {
        const std::uint64_t more = saturating_mul(kMomentsWanted, moment_bytes(config, options));
        plan.checkpoints = std::min(saturating_add(plan.checkpoints, more), *left);
    }
    fit.context = taken.sequence.context;
    fit.plan = plan;
    return fit;
}

}  // namespace strata::model
