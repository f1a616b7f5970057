#include "convert/convert.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "convert/draft.h"
#include "convert/hf_config.h"
#include "convert/metadata.h"
#include "convert/output.h"
#include "convert/recipes.h"
#include "gguf/writer.h"

namespace strata::convert {
namespace {

Status resolve_mtp(const ConvertOptions& options, const Source& source, HfConfig& config) {
    if (!config.mtp_stated && source.has_mtp()) config.model.mtp_layers = 1;
    if (!options.mtp) config.model.mtp_layers = 0;
    if (config.model.mtp_layers > 0 && !source.has_mtp()) {
        return STRATA_ERROR("config.json of ", quote(options.directory),
                            " says that there is an MTP layer, but no tensor's name begins with "
                            "'mtp.'; convert without the MTP layer (--no-mtp)");
    }
    return Ok{};
}

// An MTP layer has no n-gram table, and where its embedding and head come from its model's file is
// named at run.
Status resolve_layer(const ConvertOptions& options, HfConfig& config) {
    if (!options.mtp) {
        return STRATA_ERROR(quote(options.directory),
                            " holds an MTP layer alone, and it was to be left out (--no-mtp)");
    }
    STRATA_TRY(check_layer_types(options.types));
    config.model.mtp_layers = 1;
    config.model.ngram = {};
    return Ok{};
}

// Of an MTP layer whose target is given: the target's, which the layer must fit.
Status set_layer_tokenizer(const ConvertOptions& options, const model::Config& layer,
                           gguf::Writer& writer) {
    STRATA_ASSIGN(const model::Config target, take_target(options.target, writer));
    Status status = model::check_mtp_layer(layer, target);
    if (status.ok()) return status;
    return STRATA_ERROR(quote(options.directory), ": ", status.error().message);
}

Status convert_target(const ConvertOptions& options) {
    STRATA_ASSIGN(HfConfig config, read_config(options.directory + "/config.json"));
    STRATA_ASSIGN(const auto checkpoint, safetensors::Checkpoint::open(options.directory));
    STRATA_ASSIGN(Source source, Source::create(checkpoint));
    if (!options.target.empty() && !source.mtp_alone()) {
        return STRATA_ERROR("a target (", quote(options.target), ") was given, and ",
                            quote(options.directory),
                            " is one itself, wanted it for a drafter alone");
    }
    STRATA_TRY(source.mtp_alone() ? resolve_layer(options, config)
                                  : resolve_mtp(options, source, config));
    STRATA_TRY(complete_hash(config, source));
    STRATA_ASSIGN(std::vector<Recipe> recipes, make_recipes(config, source));

    gguf::Writer writer;
    set_model_keys(config, writer);
    set_general_keys(options, writer);
    STRATA_TRY(options.target.empty() ? set_tokenizer_keys(options.directory, config, writer)
                                      : set_layer_tokenizer(options, config.model, writer));
    std::vector<Output> outputs;
    for (Recipe& recipe : recipes) {
        STRATA_ASSIGN(const quant::Type type, choose_type(options.types, recipe.spec));
        STRATA_ASSIGN(Output output, declare(std::move(recipe), type, writer));
        outputs.push_back(std::move(output));
    }
    return write_outputs(options, outputs, writer);
}

}  // namespace

Status convert_checkpoint(const ConvertOptions& options) {
    STRATA_ASSIGN(const bool draft, is_draft(options.directory + "/config.json"));
    if (draft) return convert_draft(options);
    return convert_target(options);
}

}  // namespace strata::convert
