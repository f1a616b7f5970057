#include "engine/unused_drafts.h"

#include <string>
#include <vector>

#include "base/text.h"
#include "engine/model_text.h"
#include "model/config.h"
#include "model/tensors.h"
#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"

namespace strata {
namespace {

Status check_dflash(const std::string& path, const gguf::File& model, const model::Config& target) {
    STRATA_ASSIGN(const gguf::File draft, gguf::File::open(path));
    STRATA_ASSIGN(const dflash::Config config, dflash::config_from_gguf(draft));
    if (Status status = dflash::check_target(config, target); !status.ok()) {
        return STRATA_ERROR(quote(draft.path()), ": ", status.error().message);
    }
    STRATA_TRY(dflash::check_tensors(config, draft));
    return check_tokenizer(draft, model);
}

Status check_mtp(const std::string& path, const gguf::File& model, const model::Config& target) {
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(path));
    STRATA_ASSIGN(const model::Config layer, model::mtp_layer_from_gguf(file, target));
    const std::vector<std::string> missing = model::missing_mtp_tensors(layer, file);
    if (!missing.empty()) return STRATA_ERROR(quote(file.path()), ": ", missing.front());
    return check_tokenizer(file, model);
}

}  // namespace

Status check_unused_drafts(const EngineOptions& options, const gguf::File& model) {
    if (options.unused_dflash.empty() && options.unused_mtp.empty()) return Ok{};
    STRATA_ASSIGN(const model::Config target, model::config_from_gguf(model));
    if (!options.unused_dflash.empty()) {
        STRATA_TRY(check_dflash(options.unused_dflash, model, target));
    }
    return options.unused_mtp.empty() ? Status(Ok{}) : check_mtp(options.unused_mtp, model, target);
}

}  // namespace strata
