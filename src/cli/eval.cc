// strata eval: how well a model predicts a text, alone or beside another file of it, and what
// drafters do.
#include "strata/eval.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/eval_drafts.h"
#include "cli/guard.h"
#include "cli/input.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/watched.h"

namespace strata::cli {
namespace {

// The other side of a comparison: a file, and in what it is run otherwise than `model` says.
struct Against {
    std::string file;
    std::optional<DeviceChoice> device;
    std::size_t cache = kCacheNames.size();  // past the last: that of `model`
    std::size_t prompt_form = kPromptFormNames.size();
};

struct Eval {
    ModelOptions model;
    Against against;
    std::string file;
    std::string output;
    bool json = false;
};

std::string table(const Perplexity& found) {
    return concat("tokens          ", found.tokens, " in windows of ", found.window,
                  "\nnats per token  ", found.nats.value, " +- ", found.nats.error,
                  "\nbits per byte   ", found.bits_per_byte, "\nperplexity      ",
                  found.perplexity.value, " +- ", found.perplexity.error, "\n");
}

Json object(const Perplexity& found) {
    return {{"tokens", found.tokens},
            {"window", found.window},
            {"nats_per_token", found.nats.value},
            {"nats_per_token_error", found.nats.error},
            {"bits_per_byte", found.bits_per_byte},
            {"perplexity", found.perplexity.value},
            {"perplexity_error", found.perplexity.error}};
}

std::string table(const Agreement& found) {
    return concat("tokens         ", found.tokens, " in windows of ", found.window,
                  "\nmean KL        ", found.divergence.value, " +- ", found.divergence.error,
                  " nats\nlargest KL     ", found.largest_divergence, " nats, after token ",
                  found.largest_position, "\nsame top token ", 100 * found.same_top,
                  " %\nlargest margin ", found.largest_margin, " where it is another\n");
}

Json object(const Agreement& found) {
    return {{"tokens", found.tokens},
            {"window", found.window},
            {"mean_kl", found.divergence.value},
            {"mean_kl_error", found.divergence.error},
            {"largest_kl", found.largest_divergence},
            {"largest_kl_position", found.largest_position},
            {"top1_agreement", found.same_top},
            {"largest_margin", found.largest_margin}};
}

std::string table(const Importance& found) {
    return concat("tokens    ", found.tokens, " in windows of ", found.window, "\ntensors   ",
                  found.tensors, "\nmatrices  ", found.matrices, ", of which ",
                  found.matrices_unused, " met no input\n");
}

Json object(const Importance& found) {
    return {{"tokens", found.tokens},
            {"window", found.window},
            {"tensors", found.tensors},
            {"matrices", found.matrices},
            {"matrices_unused", found.matrices_unused}};
}

template <typename Found>
Status show(const Found& found, bool json) {
    return print(json ? json_line(object(found)) : table(found));
}

Status run_perplexity(const Eval& options) {
    STRATA_ASSIGN(const std::string text, read_text(options.file));
    Watched watched("perplexity");
    STRATA_ASSIGN(const auto engine, load(options.model));
    STRATA_ASSIGN(const Perplexity found,
                  perplexity(*engine, text, options.model.context, watched.callback()));
    return show(found, options.json);
}

ModelOptions against_model(const Eval& options) {
    const Against& against = options.against;
    ModelOptions model = options.model;
    model.model = against.file;
    model.device = against.device.value_or(model.device);
    if (against.cache < kCacheNames.size()) model.cache = against.cache;
    if (against.prompt_form < kPromptFormNames.size()) model.prompt_form = against.prompt_form;
    return model;
}

Status run_agreement(const Eval& options) {
    AgreementRequest request;
    STRATA_ASSIGN(request.text, read_text(options.file));
    request.model = engine_options(options.model);
    request.against = engine_options(against_model(options));
    request.window = options.model.context;
    Watched watched("agreement");
    STRATA_ASSIGN(const Agreement found, agreement(request, watched.callback()));
    return show(found, options.json);
}

Status run_importance(const Eval& options) {
    STRATA_TRY(guard_models(options.output));
    ImportanceRequest request;
    STRATA_ASSIGN(request.text, read_text(options.file));
    request.output = options.output;
    request.window = options.model.context;
    Watched watched("importance");
    STRATA_ASSIGN(const auto engine, load(options.model));
    STRATA_ASSIGN(const Importance found, gather_importance(*engine, request, watched.callback()));
    return show(found, options.json);
}

void add_common(Options& options, Eval* to) {
    add_model_option(options, &to->model);
    options.text("-f,--file", "FILE", &to->file, "The text; -: standard input").required();
    options.integer("-c,--context", {2, INT32_MAX}, &to->model.context,
                    concat("Tokens of a window, each run from an empty state (default: ",
                           kEvalWindowDefault, ", or the trained length where that is less)"));
    add_computing_options(options, &to->model);
    options.flag("--json", &to->json, "Print one JSON object instead of a table");
}

Run add_perplexity(Options& options) {
    const auto to = std::make_shared<Eval>();
    add_common(options, to.get());
    return [to] { return run_perplexity(*to); };
}

Run add_importance(Options& options) {
    const auto to = std::make_shared<Eval>();
    add_common(options, to.get());
    options.text("-o,--output", "OUT", &to->output, "Where to write; whole or not at all")
        .required();
    return [to] { return run_importance(*to); };
}

Run add_agreement(Options& options) {
    const auto to = std::make_shared<Eval>();
    add_common(options, to.get());
    options
        .text("--against", "FILE", &to->against.file,
              "The file of the same model that is taken as right: KL is of -m's predictions from "
              "its")
        .required();
    options.choice("--against-kv", kCacheNames, &to->against.cache,
                   "Numbers that that one keeps keys and values in (default: as --kv says)");
    options.choice("--against-prompt-form", kPromptFormNames, &to->against.prompt_form,
                   "How that one reads the text (default: as --prompt-form says)");
    options.parsed(
        "--against-device", "auto|cpu|cuda|cuda:N",
        [to](const std::string& text) { return read_device(text, to->against.device.emplace()); },
        "What that one computes on (default: as --device says)");
    return [to] { return run_agreement(*to); };
}

}  // namespace

Run add_eval(Options& options) {
    return options.commands(
        {{"perplexity", "How well a model predicts a text", add_perplexity},
         {"agreement", "How far two files of one model are apart on a text", add_agreement},
         {"importance", "How large each matrix's inputs are on a text, for quantize",
          add_importance},
         {"acceptance", "How many guesses of each drafter are right, and what that gains",
          add_acceptance},
         {"lossless", "That texts are the same with every drafter as without", add_lossless}});
}

}  // namespace strata::cli
