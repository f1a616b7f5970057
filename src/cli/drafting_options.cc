#include "cli/drafting_options.h"

#include "base/text.h"
#include "cli/guard.h"

namespace strata::cli {
namespace {

Status check_kind(const DraftingOptions& options) {
    if (options.draft == "dflash" && !options.dflash) {
        return STRATA_ERROR("--draft dflash is given without a draft: --dflash FILE is wanted");
    }
    if (options.draft == "dflash" && options.mtp) {
        return STRATA_ERROR(
            "--draft dflash asks for one drafter and --mtp gives another: one of "
            "the two is wanted, or --draft auto, which takes both");
    }
    for (const auto* file : {&options.dflash, &options.mtp}) {
        if (!*file || !(*file)->empty()) continue;
        return STRATA_ERROR(file == &options.mtp ? "--mtp" : "--dflash",
                            " is empty, and a file is wanted");
    }
    for (const char* kind : {"none", "auto", "joined", "suffix", "mtp", "dflash"}) {
        if (options.draft == kind) return Ok{};
    }
    return STRATA_ERROR("--draft is ", quote(options.draft),
                        ", and none, suffix, mtp, dflash, joined or auto is wanted");
}

Status check_window(const DraftingOptions& options) {
    const bool named = options.draft != "none" && options.draft != "auto";
    if (options.rows.value_or(2) < 2 && (options.dflash || named)) {
        return STRATA_ERROR(options.dflash ? "--dflash" : "--draft", " is given with --spec ",
                            *options.rows, ", which leaves no row for a guess: --spec 2 to ",
                            kWindowMax, " is wanted, or none of the two");
    }
    const double least = options.confidence_min.value_or(0);
    if (!(least >= 0 && least <= 1)) {
        return STRATA_ERROR("--spec-min-p is ", shortest(least), ", and 0 to 1 is wanted");
    }
    return Ok{};
}

Status check_dump(const DraftingOptions& options) {
    if (!options.dump && (options.dump_layers || options.dump_residual)) {
        return STRATA_ERROR(options.dump_layers ? "--dump-layers" : "--dump-residual",
                            " is given without --dump-features: where to write is wanted");
    }
    if (options.dump && options.dump->empty()) {
        return STRATA_ERROR("--dump-features is empty, and the start of a file name is wanted");
    }
    return Ok{};
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
        "Who guesses tokens ahead, which the model then verifies; the text stays the same: none; "
        "suffix: what followed when the text ended like this before; mtp: the model's own MTP "
        "layer; dflash: the DFlash2 draft of --dflash; joined: suffix, and where that guesses "
        "nothing the DFlash2 draft or, without one, the MTP layer; auto: of all that are there, "
        "window by window, whoever gives most tokens a second (default: auto)");
    options.text("--dflash", "FILE", &to->dflash,
                 "A DFlash2 draft for this model: a GGUF file, as convert makes them");
    options.text(
        "--mtp", "FILE", &to->mtp,
        "The MTP layer: a GGUF file of this model's layer alone, or of a model whose layer "
        "is wanted (default: the model file's own)");
    options.integer(
        "--spec", {1, kWindowMax}, &to->rows,
        concat("Rows of a verify window, 1 to ", kWindowMax,
               ": the last token and one row a guess (default: the block size of a "
               "DFlash2 draft, 4 of the MTP layer, at most 16 of suffix and auto, of joined what "
               "each has)"));
    options.real("--spec-min-p", &to->confidence_min,
                 concat("A draft ends before the first guess whose confidence is below this, 0 to "
                        "1 (default: ",
                        kDflashConfidenceMin,
                        " of a DFlash2 draft, 0 of the MTP "
                        "layer)"));
    add_dump_options(options, to);
    options.check([to] { return check_drafter(*to); });
    options.check([to] { return check_dump(*to); });
}

Status check_drafter(const DraftingOptions& options) {
    STRATA_TRY(check_kind(options));
    return check_window(options);
}

Result<std::unique_ptr<Engine>> load(const ModelOptions& model, const DraftingOptions& drafting) {
    EngineOptions options = engine_options(model);
    // A draft that will not guess is not loaded, unless it says which features to dump.
    const bool several = drafting.draft == "auto" || drafting.draft == "joined";
    const bool dflash = several || drafting.draft == "dflash" || drafting.dump;
    const bool mtp = several || drafting.draft == "mtp";
    (dflash ? options.dflash : options.unused_dflash) = drafting.dflash.value_or("");
    (mtp ? options.mtp : options.unused_mtp) = drafting.mtp.value_or("");
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
    return load(options);
}

Drafting drafting_of(const DraftingOptions& options) {
    Drafting drafting;
    if (options.draft == "auto") drafting.kind = DraftKind::best;
    if (options.draft == "suffix") drafting.kind = DraftKind::suffix;
    if (options.draft == "mtp") drafting.kind = DraftKind::mtp;
    if (options.draft == "dflash") drafting.kind = DraftKind::dflash;
    if (options.draft == "joined") drafting.kind = DraftKind::joined;
    drafting.rows = options.rows.value_or(0);
    if (drafting.rows == 1) drafting = {};
    drafting.confidence_min = options.confidence_min;
    return drafting;
}

}  // namespace strata::cli
