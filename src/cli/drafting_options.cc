#include "cli/drafting_options.h"

#include "base/text.h"
#include "cli/guard.h"

namespace strata::cli {
namespace {

Status check_options(const DraftingOptions& options) {
    const double least = options.confidence_min.value_or(0);
    if (!(least >= 0 && least <= 1)) {
        return STRATA_ERROR("--spec-min-p is ", least, ", and 0 to 1 is wanted");
    }
    if (!options.dump && (options.dump_layers || options.dump_residual)) {
        return STRATA_ERROR(options.dump_layers ? "--dump-layers" : "--dump-residual",
                            " is given without --dump-features: where to write is wanted");
    }
    if (options.dump && options.dump->empty()) {
        return STRATA_ERROR("--dump-features is empty, and the start of a file name is wanted");
    }
    for (const char* kind : {"none", "auto", "suffix", "mtp"}) {
        if (options.draft == kind) return Ok{};
    }
    return STRATA_ERROR("--draft is ", quote(options.draft),
                        ", and none, suffix, mtp or auto is wanted");
}

void add_dump_options(Options& options, DraftingOptions* to) {
    options.text("--dump-features", "PREFIX", &to->dump,
                 "For training drafters, append every token that is run: int32 position and int32 "
                 "token to PREFIX.idx, the mean of the residual streams after chosen layers to "
                 "PREFIX.f16 (layers x hidden halves)");
    options.list("--dump-layers", "layer", &to->dump_layers,
                 "These layers, counted from 0 (default: those of the DFlash2 draft that is "
                 "loaded, else the five of round(linspace(5, layers - 3, 5)); of models of fewer "
                 "than 12 layers, five spread evenly from the first to the last)");
    options.flag("--dump-residual", &to->dump_residual,
                 "Append the streams after the last layer to PREFIX.res as well (streams x hidden "
                 "halves), which MTP layers are trained on");
}

}  // namespace

void add_drafting_options(Options& options, DraftingOptions* to) {
    options.text(
        "--draft", "KIND", &to->draft,
        "Who guesses tokens ahead, which the model then verifies; the text stays the same: "
        "none; suffix: what followed the last time that the text ended like this; mtp: "
        "the model's own MTP layer; auto: none in this version (default: auto)");
    options.integer("--spec", {2, kWindowMax}, &to->rows,
                    concat("Rows of a verify window, 2 to ", kWindowMax,
                           ": the last token and one row a guess (default: ", to->rows, ")"));
    options.real("--spec-min-p", &to->confidence_min,
                 "An MTP draft ends before the first guess whose confidence is below this, 0 to 1 "
                 "(default: 0)");
    add_dump_options(options, to);
    options.check([to] { return check_options(*to); });
}

Result<std::unique_ptr<Engine>> load(const ModelOptions& model, const DraftingOptions& drafting) {
    EngineOptions options = engine_options(model);
    if (drafting.dump) {
        for (const char* end : {".idx", ".f16", ".res", ".json"}) {
            STRATA_TRY(guard_models(*drafting.dump + end));
        }
        options.dump.prefix = *drafting.dump;
        options.dump.residual = drafting.dump_residual;
        if (drafting.dump_layers) {
            options.dump.layers.assign(drafting.dump_layers->begin(), drafting.dump_layers->end());
        }
    }
    return Engine::load(options);
}

// auto is none: a drafter runs where it is named.
Drafting drafting_of(const DraftingOptions& options) {
    const bool suffix = options.draft == "suffix";
    const bool mtp = options.draft == "mtp";
    return {.kind = suffix ? DraftKind::suffix
                    : mtp  ? DraftKind::mtp
                           : DraftKind::none,
            .rows = options.rows,
            .confidence_min = options.confidence_min.value_or(0)};
}

}  // namespace strata::cli
