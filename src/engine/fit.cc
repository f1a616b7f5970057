#include "engine/fit.h"

#include <algorithm>

#include "backend/choose.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/target.h"
#include "spec/dflash/block_model.h"
#include "spec/dflash/config.h"
#include "spec/dflash_drafter.h"

namespace strata {
namespace {

// Brings what there is down to what may be taken. Whether that is less.
bool limit(std::uint64_t& bytes, std::optional<std::int64_t> most) {
    if (!most || static_cast<std::uint64_t>(*most) >= bytes) return false;
    bytes = static_cast<std::uint64_t>(*most);
    return true;
}

}  // namespace

Result<model::Fit> fit_engine(const EngineOptions& options, const EngineFiles& files,
                              std::optional<std::uint64_t> device) {
    STRATA_ASSIGN(const model::Config config, model::config_from_gguf(*files.model));
    if (options.context > config.context) {
        return STRATA_ERROR("the context is ", options.context,
                            " tokens, wanted at most the trained length of ", config.context);
    }
    model::PlanOptions plan;
    plan.may_shrink = options.context == 0;
    plan.sequence.context = plan.may_shrink ? config.context : options.context;
    plan.sequence.cache = cache_type(options.cache);
    plan.sequence.mtp = config.mtp_layers > 0 || files.mtp != nullptr;
    plan.rows_max = std::max(options.chunk, model::kWindowRowsMax);
    plan.ngram_cache =
        static_cast<std::uint64_t>(model::ngram_cache_bytes(*files.model, options.ngram_cache));
    plan.ngram_resident = plan.ngram_cache == 0;
    if (options.checkpoints) plan.checkpoints = static_cast<std::uint64_t>(*options.checkpoints);
    if (files.dflash != nullptr) {
        STRATA_ASSIGN(const dflash::Config block, dflash::config_from_gguf(*files.dflash));
        const std::uint64_t workspace = dflash::BlockModel::workspace_bytes(block, plan.rows_max);
        plan.drafter_context = [=, cache = plan.sequence.cache](std::int64_t context) {
            return workspace + spec::DflashDrafter::bytes(block, {context, cache});
        };
    }
    std::vector<const gguf::File*> drafters;
    for (const gguf::File* file : {files.mtp, files.dflash}) {
        if (file != nullptr) drafters.push_back(file);
    }
    model::MemoryRoom room;
    room.host = available_memory();
    room.device = device;
    room.host_is_set = limit(room.host, options.ram);
    room.device_is_set = device && limit(*room.device, options.vram);
    return model::fit_memory(model::file_sizes(*files.model, config, drafters), config, plan, room);
}

MemoryUse memory_use(const model::MemoryPlan& plan) {
    return {plan.weights, plan.state, plan.workspace, plan.drafter, plan.reserve, plan.checkpoints};
}

}  // namespace strata
