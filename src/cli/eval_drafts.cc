// strata eval acceptance, strata eval lossless: what drafters do to speed, and that they do nothing
// to the text.
#include "cli/eval_drafts.h"

#include <filesystem>
#include <iomanip>
#include <sstream>

#include "base/text.h"
#include "cli/drafting_options.h"
#include "cli/input.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/watched.h"
#include "strata/eval.h"

namespace strata::cli {
namespace {

using Rows = std::vector<std::int32_t>;

struct EvalDrafts {
    ModelOptions model;
    SamplingOptions sampling;
    std::vector<std::string> files;
    std::vector<std::string> questions;
    std::optional<std::string> given;
    std::optional<std::string> shard;
    std::vector<std::string> drafts;
    std::optional<std::string> dflash;
    std::optional<std::string> mtp;
    std::optional<Rows> rows;
    std::vector<std::string> floors;
    std::vector<std::string> floors_default;  // empty: the drafter's own
    std::int64_t prompts = DraftTrialRequest{}.prompts;
    std::int64_t prompt_tokens = DraftTrialRequest{}.prompt_tokens;
    std::int64_t max_tokens = DraftTrialRequest{}.max_tokens;
    bool json = false;
};

// Of the name of a kind of text, which stands in a table.
constexpr std::size_t kKindBytesMax = 100;

Status check_kind(const std::string& name) {
    if (name.size() <= kKindBytesMax) return Ok{};
    return STRATA_ERROR("the kind ", quote(name), " has ", name.size(), " bytes, wanted at most ",
                        kKindBytesMax);
}

// "code=FILE", or FILE alone, whose name without its end is then the kind.
Result<TextKind> read_kind(const std::string& given, bool questions) {
    const std::size_t equals = given.find('=');
    const bool named = equals != std::string::npos && equals > 0;
    const std::string path = named ? given.substr(equals + 1) : given;
    TextKind kind;
    kind.questions = questions;
    kind.name = named ? given.substr(0, equals) : std::filesystem::path(path).stem().string();
    STRATA_TRY(check_kind(kind.name));
    STRATA_ASSIGN(kind.text, read_text(path));
    return kind;
}

// Of one line: a prompt as it is, or a question.
Status read_prompt(const std::string& line, std::vector<TextKind>& kinds) {
    const Json object = Json::parse(line, nullptr, false);
    const auto text = [&](const char* key) -> std::optional<std::string> {
        if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return {};
        return object[key].get<std::string>();
    };
    if (object.is_object() && object.contains("prompt") && object.contains("question")) {
        return STRATA_ERROR("both 'prompt' and 'question' are given: one of the two is wanted");
    }
    const auto name = text("kind");
    const auto question = text("question");
    const auto prompt = question ? question : text("prompt");
    if (!name || !prompt) {
        return STRATA_ERROR(quote(line),
                            " is no prompt, wanted an object "
                            "with the strings 'kind' and 'prompt' or 'question'");
    }
    STRATA_TRY(check_kind(*name));
    for (TextKind& kind : kinds) {
        if (kind.name != *name || kind.questions != question.has_value()) continue;
        kind.given.push_back(*prompt);
        return Ok{};
    }
    kinds.push_back(
        {.name = *name, .text = {}, .questions = question.has_value(), .given = {*prompt}});
    return Ok{};
}

Status read_prompts(const std::string& path, std::vector<TextKind>& kinds) {
    STRATA_ASSIGN(const std::string text, read_text(path));
    std::istringstream lines(text);
    std::int64_t number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        if (line.empty()) continue;
        const Status status = read_prompt(line, kinds);
        if (!status.ok()) {
            return STRATA_ERROR("line ", number, " of ", quote(path), ": ", status.error().message);
        }
    }
    if (!kinds.empty()) return Ok{};
    return STRATA_ERROR(quote(path), " holds no prompt, wanted one a line");
}

// "2/16": the second of sixteen.
Status read_shard(const std::string& text, DraftTrialRequest& request) {
    const std::size_t slash = text.find('/');
    if (slash != std::string::npos) {
        const auto number = parse_integer(text.substr(0, slash), {1, INT32_MAX});
        const auto count = parse_integer(text.substr(slash + 1), {1, INT32_MAX});
        if (number.ok() && count.ok() && *number <= *count) {
            request.shard = *number - 1;
            request.shards = *count;
            return Ok{};
        }
    }
    return STRATA_ERROR("--shard is ", quote(text), ", and I/N is wanted, the I-th of N parts");
}

// One way to draft, and what it was asked for by.
struct Variant {
    std::string name;
    DraftingOptions drafting;
};

std::vector<std::string> loaded_drafters(const EvalDrafts& options, bool mtp) {
    std::vector<std::string> all = {"suffix"};
    if (mtp) all.emplace_back("mtp");
    if (options.dflash) all.emplace_back("dflash");
    if (mtp || options.dflash) all.emplace_back("joined");
    all.emplace_back("auto");
    return all;
}

// Every drafter with every number of rows and every floor that it heeds.
Result<std::vector<Variant>> variants(const EvalDrafts& options,
                                      const std::vector<std::string>& names) {
    const std::vector<std::string>& floors =
        options.floors.empty() ? options.floors_default : options.floors;
    std::vector<Variant> all;
    for (const std::string& name : names) {
        for (const std::int32_t rows : options.rows.value_or(Rows{0})) {
            DraftingOptions one;
            one.draft = name;
            one.dflash = options.dflash;
            if (rows != 0) one.rows = rows;
            if (floors.empty() || name == "suffix") {
                all.push_back({name, one});
                continue;
            }
            for (const std::string& floor : floors) {
                STRATA_ASSIGN(one.confidence_min, parse_real(floor));
                all.push_back({name, one});
            }
        }
    }
    return all;
}

// What was tried, and what came of it: of each kind of text a trial without a drafter, then one of
// each name.
struct Trials {
    std::vector<std::string> names;
    std::vector<DraftTrial> all;

    std::size_t of_a_kind() const { return names.size() + 1; }
    bool plain(std::size_t i) const { return i % of_a_kind() == 0; }
    const DraftTrial& plain_of(std::size_t i) const { return all[i - i % of_a_kind()]; }
    const std::string& name(std::size_t i) const { return names[i % of_a_kind() - 1]; }
};

Result<Trials> run_trials(const EvalDrafts& options) {
    Watched watched("drafts");
    DraftTrialRequest request;
    for (const std::string& file : options.files) {
        STRATA_ASSIGN(TextKind kind, read_kind(file, false));
        request.kinds.push_back(std::move(kind));
    }
    for (const std::string& file : options.questions) {
        STRATA_ASSIGN(TextKind kind, read_kind(file, true));
        request.kinds.push_back(std::move(kind));
    }
    if (options.given) STRATA_TRY(read_prompts(*options.given, request.kinds));
    if (options.shard) STRATA_TRY(read_shard(*options.shard, request));
    DraftingOptions drafting;
    drafting.dflash = options.dflash;
    drafting.mtp = options.mtp;
    STRATA_ASSIGN(const auto engine, load(options.model, drafting));
    STRATA_ASSIGN(
        const auto tried,
        variants(options, options.drafts.empty() ? loaded_drafters(options, engine->info().has_mtp)
                                                 : options.drafts));
    Trials trials;
    for (const Variant& one : tried) {
        trials.names.push_back(one.name);
        request.draftings.push_back(drafting_of(one.drafting));
    }
    request.prompts = options.prompts;
    request.prompt_tokens = options.prompt_tokens;
    request.max_tokens = options.max_tokens;
    request.sampling = chosen(options.sampling, engine->info().sampling);
    STRATA_ASSIGN(trials.all, draft_trials(*engine, request, watched.callback()));
    return trials;
}

double ratio(double value, double of) { return of > 0 ? value / of : 0; }

double tokens_per_second(const DraftTrial& trial) {
    return ratio(1000 * static_cast<double>(trial.tokens), trial.decode_ms);
}

// The first token of a text comes from its prompt, not from a window.
double tokens_per_window(const DraftTrial& trial) {
    return ratio(static_cast<double>(trial.tokens - trial.prompts),
                 static_cast<double>(trial.counts.windows));
}

Json object(const Trials& trials, std::size_t i) {
    const DraftTrial& trial = trials.all[i];
    Json out = {{"kind", trial.kind}, {"draft", trials.plain(i) ? "none" : trials.name(i)}};
    if (trial.drafting.rows != 0) out["rows"] = trial.drafting.rows;
    if (trial.drafting.confidence_min) out["floor"] = *trial.drafting.confidence_min;
    const double speed = tokens_per_second(trial);
    out.update({{"prompts", trial.prompts},
                {"tokens", trial.tokens},
                {"windows", trial.counts.windows},
                {"drafted", trial.counts.drafted},
                {"accepted", trial.counts.accepted},
                {"accepted_by_position", trial.counts.accepted_by_position},
                {"tokens_per_window", tokens_per_window(trial)},
                {"decode_tps", speed},
                {"speedup", ratio(speed, tokens_per_second(trials.plain_of(i)))},
                {"draft_ms", trial.counts.draft_ms},
                {"verify_ms", trial.counts.verify_ms},
                {"different", trial.different}});
    for (const DrafterCounts& one : trial.counts.by_drafter) {
        out["by_drafter"][one.name] = {
            {"windows", one.windows}, {"drafted", one.drafted}, {"accepted", one.accepted}};
    }
    return out;
}

// With two digits, as the stream is set; a dash where there is nothing to tell of.
void put(std::ostream& out, int width, double value) {
    out << std::setw(width);
    value > 0 ? out << value : out << '-';
}

constexpr const char* kHeading =
    "text         draft   rows  floor  tokens/window  speedup  accepted, % of windows\n";

std::string line(const Trials& trials, std::size_t i) {
    const DraftTrial& trial = trials.all[i];
    const std::string rows = trial.drafting.rows == 0 ? "-" : concat(trial.drafting.rows);
    const auto& floor = trial.drafting.confidence_min;
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << std::left << std::setw(12) << escaped(trial.kind) << ' ' << std::setw(7)
        << (trials.plain(i) ? "none" : trials.name(i)) << std::right << std::setw(5) << rows
        << std::setw(7) << (floor ? concat(*floor) : "-") << std::fixed << std::setprecision(2);
    put(out, 15, tokens_per_window(trial));
    put(out, 9, ratio(tokens_per_second(trial), tokens_per_second(trials.plain_of(i))));
    out << std::setprecision(0) << ' ';
    for (const std::int64_t accepted : trial.counts.accepted_by_position) {
        out << ' '
            << 100 *
                   ratio(static_cast<double>(accepted), static_cast<double>(trial.counts.windows));
    }
    out << '\n';
    return out.str();
}

Status check_equal(const Trials& trials) {
    for (std::size_t i = 0; i < trials.all.size(); ++i) {
        const DraftTrial& trial = trials.all[i];
        if (!trial.first) continue;
        return STRATA_ERROR(trial.different, " of ", trial.prompts, " texts of ", quote(trial.kind),
                            " differ with drafter ", trials.name(i), ": after prompt ",
                            trial.first->prompt, ", token ", trial.first->position, " is ",
                            trial.first->found, ", wanted ", trial.first->wanted,
                            " as without a drafter");
    }
    return Ok{};
}

Status run_acceptance(const EvalDrafts& options) {
    STRATA_ASSIGN(const Trials trials, run_trials(options));
    std::string table = kHeading;
    Json list = Json::array();
    for (std::size_t i = 0; i < trials.all.size(); ++i) {
        if (options.json) list.push_back(object(trials, i));
        if (!options.json) table += line(trials, i);
    }
    STRATA_TRY(print(options.json ? json_line(list) : table));
    return check_equal(trials);
}

Status run_lossless(const EvalDrafts& options) {
    STRATA_ASSIGN(const Trials trials, run_trials(options));
    DraftTrial sum;
    for (std::size_t i = 0; i < trials.all.size(); ++i) {
        if (trials.plain(i)) continue;
        sum.prompts += trials.all[i].prompts;
        sum.counts.drafted += trials.all[i].counts.drafted;
        sum.counts.accepted += trials.all[i].counts.accepted;
        sum.different += trials.all[i].different;
    }
    const Json found = {{"texts", sum.prompts},
                        {"drafted", sum.counts.drafted},
                        {"accepted", sum.counts.accepted},
                        {"different", sum.different}};
    const std::string table =
        concat("drafted texts    ", sum.prompts, "\nguesses          ", sum.counts.drafted, ", ",
               sum.counts.accepted, " of them right\ndifferent texts  ", sum.different, "\n");
    STRATA_TRY(print(options.json ? json_line(found) : table));
    return check_equal(trials);
}

void add_common(Options& options, EvalDrafts* to) {
    add_model_options(options, &to->model);
    options.texts("-f,--file", "[KIND=]FILE", &to->files,
                  "Text that prompts are cut from; given several times, kinds of text that are "
                  "told apart (default: prompts of random tokens)");
    options.texts("--questions", "[KIND=]FILE", &to->questions,
                  "Questions, one a line, each asked in the model's chat form: a kind of text too");
    options.text("--prompt-file", "FILE", &to->given,
                 "Prompts as they are, one a line: an object of JSON with 'kind' and 'prompt', or "
                 "'question' for the model's chat form");
    options.text("--shard", "I/N", &to->shard,
                 "Of all texts with a drafter, the I-th of N parts: N processes share the work");
    options.integer("--prompts", {1, INT32_MAX}, &to->prompts,
                    concat("Prompts of each kind (default: ", to->prompts, ")"));
    options.integer("--prompt-tokens", {1, INT32_MAX}, &to->prompt_tokens,
                    concat("Tokens of a prompt that is cut (default: ", to->prompt_tokens, ")"));
    options.integer("-n,--max-tokens", {1, INT32_MAX}, &to->max_tokens,
                    concat("Tokens to continue each by at most (default: ", to->max_tokens, ")"));
    options.texts(
        "--draft", "KIND", &to->drafts,
        "A drafter to try (suffix, mtp, dflash, joined, auto); may be given several times "
        "(default: all that are loaded)");
    options.text("--dflash", "FILE", &to->dflash, "A DFlash2 draft for this model");
    options.text("--mtp", "FILE", &to->mtp,
                 "The MTP layer: a file of the layer alone, or of a model whose layer is wanted "
                 "(default: the model file's own)");
    add_sampling_options(options, &to->sampling);
    options.flag("--json", &to->json, "Print JSON instead of a table");
    options.check([to]() -> Status {
        DraftTrialRequest ignored;
        if (to->shard) STRATA_TRY(read_shard(*to->shard, ignored));
        for (const std::int32_t rows : to->rows.value_or(Rows{})) {
            if (rows >= 2 && rows <= kWindowMax) continue;
            return STRATA_ERROR("--spec holds ", rows, ", and 2 to ", kWindowMax, " is wanted");
        }
        if (std::ranges::find(to->drafts, "none") != to->drafts.end()) {
            return STRATA_ERROR(
                "--draft none is no drafter, and one of suffix, mtp, dflash, joined "
                "and auto is wanted: each is tried beside none");
        }
        const auto names = to->drafts.empty() ? loaded_drafters(*to, true) : to->drafts;
        STRATA_ASSIGN(const auto all, variants(*to, names));
        for (const Variant& one : all) STRATA_TRY(check_drafter(one.drafting));
        return Ok{};
    });
}

}  // namespace

Run add_acceptance(Options& options) {
    const auto to = std::make_shared<EvalDrafts>();
    add_common(options, to.get());
    options.list("--spec", "number of rows", &to->rows,
                 "Rows of a verify window, or several: 2,4,8 (default: the drafter's own)");
    options.texts("--spec-min-p", "P", &to->floors,
                  "A draft ends before the first guess whose confidence is below this; may be "
                  "given several times (default: the drafter's own)");
    return [to] { return run_acceptance(*to); };
}

Run add_lossless(Options& options) {
    const auto to = std::make_shared<EvalDrafts>();
    to->rows = Rows{2, 3, 4, 8, kWindowMax};
    to->floors_default = {"0", "0.5", "0.9"};
    add_common(options, to.get());
    options.list("--spec", "number of rows", &to->rows,
                 "Rows of a verify window, all of which are tried (default: 2,3,4,8,16)");
    options.texts("--spec-min-p", "P", &to->floors,
                  "A draft ends before the first guess whose confidence is below this; may be "
                  "given several times, and all are tried (default: 0, 0.5 and 0.9)");
    return [to] { return run_lossless(*to); };
}

}  // namespace strata::cli
