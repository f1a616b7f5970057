// strata draft: one greedy draft after a context, from the model's own MTP layer or a DFlash2
// draft.
#include "base/text.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "strata/engine.h"

namespace strata::cli {
namespace {

constexpr std::int64_t kRowsDefault = 4;

struct DraftOptions {
    ModelOptions model;
    std::optional<std::string> mtp;
    std::optional<std::vector<std::int32_t>> tokens;
    std::int64_t anchor = 0;
    std::optional<std::int64_t> rows;
    std::optional<double> confidence_min;
    bool json = false;
};

std::string table(const Draft& draft, const Engine& engine) {
    std::string out;
    for (std::size_t i = 0; i < draft.path.size(); ++i) {
        const std::string text = engine.detokenize(std::span(draft.path).subspan(i, 1));
        out += concat(draft.path[i], "\t", draft.confidence[i], "\t", quote(text), "\n");
    }
    return out;
}

// `values` as one list for each `width` of them.
template <typename T>
Json by_guess(const std::vector<T>& values, std::int64_t width) {
    Json rows = Json::array();
    for (auto at = values.begin(); at != values.end(); at += width) {
        rows.push_back(std::vector<T>(at, at + width));
    }
    return rows;
}

Result<Draft> make_draft(const DraftOptions& options, Engine& engine) {
    const auto anchor = static_cast<std::int32_t>(options.anchor);
    const auto floor = static_cast<float>(options.confidence_min.value_or(0));
    if (options.mtp) {
        return engine.draft_mtp(*options.tokens, anchor, options.rows.value_or(kRowsDefault) - 1,
                                floor);
    }
    return engine.draft_dflash(*options.tokens, anchor, options.rows.value_or(0), floor);
}

Status run(const DraftOptions& options) {
    EngineOptions engine_opts = engine_options(options.model);
    engine_opts.mtp = options.mtp.value_or("");
    STRATA_ASSIGN(const auto engine, load(engine_opts));
    STRATA_ASSIGN(const Draft draft, make_draft(options, *engine));
    if (!options.json) return print(table(draft, *engine));
    Json json = {{"path", draft.path}, {"confidence", draft.confidence}};
    if (draft.width > 0) {
        json["candidates"] = by_guess(draft.candidates, draft.width);
        json["scores"] = by_guess(draft.scores, draft.width);
    }
    return print(json_line(json));
}

Status check_options(const DraftOptions& options) {
    const bool dflash = !options.model.dflash.empty();
    if (options.mtp.has_value() == dflash) {
        return STRATA_ERROR("--mtp and --dflash are both ", dflash ? "given" : "missing",
                            ": one says which drafter guesses");
    }
    const double least = options.confidence_min.value_or(0);
    if (least < 0 || least > 1) {
        return STRATA_ERROR("--spec-min-p is ", shortest(least), ", and 0 to 1 is wanted");
    }
    return Ok{};
}

}  // namespace

Run add_draft(Options& options) {
    const auto to = std::make_shared<DraftOptions>();
    add_model_options(options, &to->model);
    options.text_or_flag("--mtp", "FILE", &to->mtp,
                         "Draft with the MTP layer of this file, or of the model file");
    options.text("--dflash", "FILE", &to->model.dflash, "Draft with this DFlash2 draft");
    options
        .list("--tokens", "token id", &to->tokens,
              "The context as token ids: 1,2,3, or @FILE for a file that holds such a list")
        .required();
    options
        .integer("--anchor", {0, INT32_MAX}, &to->anchor,
                 "The token that follows the context and has not been run")
        .required();
    options.integer("--rows", {2, kWindowMax}, &to->rows,
                    concat("Rows of the window, 2 to ", kWindowMax,
                           ": the anchor and one row a guess (default: ", kRowsDefault,
                           " for MTP, the block size for DFlash2)"));
    options.real("--spec-min-p", &to->confidence_min,
                 "End before the first guess whose confidence is below this, 0 to 1 (default: 0)");
    options.flag(
        "--json", &to->json,
        "Print one JSON object with path and confidence, for DFlash2 also candidates and scores, "
        "instead of a line a guess");
    options.check([to] { return check_options(*to); });
    return [to] { return run(*to); };
}

}  // namespace strata::cli
