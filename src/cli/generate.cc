// strata generate: one completion of raw text or tokens.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/drafting_options.h"
#include "cli/format_options.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/prompt_options.h"
#include "cli/sampling_options.h"
#include "strata/engine.h"

namespace strata::cli {
namespace {

struct Generate {
    ModelOptions model;
    PromptOptions prompt;
    SamplingOptions sampling;
    FormatOptions format;
    std::optional<std::int64_t> max_tokens;
    std::vector<std::string> stops;
    bool ignore_end_tokens = false;
    DraftingOptions drafting;
    bool json = false;
};

// To a thousandth: more is noise.
double rounded(double value) { return std::round(value * 1000) / 1000; }

double per_second(std::int64_t count, double milliseconds) {
    return milliseconds > 0 ? rounded(1000 * static_cast<double>(count) / milliseconds) : 0;
}

// Tokens that the session must hold; 0: the whole context.
std::int64_t room(const GenerateRequest& request) {
    std::int64_t tokens = 0;
    const bool wraps = __builtin_add_overflow(static_cast<std::int64_t>(request.prompt.size()),
                                              request.max_tokens, &tokens);
    return request.max_tokens < 0 || wraps ? 0 : tokens;
}

Json draft_report(const DraftCounts& draft) {
    Json json = {{"kind", draft.kind},
                 {"windows", draft.windows},
                 {"drafted", draft.drafted},
                 {"accepted", draft.accepted},
                 {"accepted_by_position", draft.accepted_by_position},
                 {"draft_ms", rounded(draft.draft_ms)},
                 {"verify_ms", rounded(draft.verify_ms)}};
    for (const DrafterCounts& one : draft.by_drafter) {
        json["by_drafter"][one.name] = {
            {"windows", one.windows}, {"drafted", one.drafted}, {"accepted", one.accepted}};
    }
    return json;
}

Json memory_report(const MemoryUse& memory) {
    return {{"weights", memory.weights},     {"state", memory.state},
            {"workspace", memory.workspace}, {"drafter", memory.drafter},
            {"reserve", memory.reserve},     {"checkpoints", memory.checkpoints}};
}

Json report(const Completion& completion, std::uint64_t seed, const ModelInfo& info) {
    const Timings& timings = completion.timings;
    Json json = {
        {"prompt_tokens", completion.prompt_tokens},
        {"tokens", completion.tokens},
        {"text", completion.text},
        {"finish", completion.finish == Finish::stop ? "stop" : "length"},
        {"seed", seed},
        {"timings",
         {{"load_ms", rounded(timings.load_ms)},
          {"prompt_ms", rounded(timings.prompt_ms)},
          {"prompt_tps", per_second(timings.prompt_tokens, timings.prompt_ms)},
          {"decode_ms", rounded(timings.decode_ms)},
          {"decode_tps", per_second(timings.decode_tokens, timings.decode_ms)}}},
        {"draft", draft_report(completion.draft)},
        {"context", info.context},
        {"memory", memory_report(info.memory)},
    };
    if (!info.context_note.empty()) json["context_note"] = info.context_note;
    return json;
}

Status print_result(const Generate& options, const Completion& completion, std::uint64_t seed,
                    const ModelInfo& info) {
    if (options.json) return print(json_line(report(completion, seed, info)));
    STRATA_TRY(print("\n"));
    warn(cut_note(completion, options.max_tokens.value_or(-1)));
    const Timings& timings = completion.timings;
    note(concat(completion.prompt_tokens, " prompt tokens, ", completion.tokens.size(),
                " generated, ", per_second(timings.decode_tokens, timings.decode_ms),
                " tokens a second, seed ", seed, "\n"));
    return Ok{};
}

Status run(const Generate& options) {
    STRATA_ASSIGN(const auto engine, load(options.model, options.drafting));
    GenerateRequest request;
    STRATA_ASSIGN(request.prompt, prompt_tokens(options.prompt, *engine));
    request.max_tokens = options.max_tokens.value_or(-1);
    request.sampling = chosen(options.sampling, engine->info().sampling);
    request.stops = options.stops;
    request.ignore_end_tokens = options.ignore_end_tokens;
    request.format = format_of(options.format);
    request.keep_states = false;  // nothing comes after it
    STRATA_ASSIGN(auto session, engine->make_session(room(request), drafting_of(options.drafting)));
    Status printed = Ok{};
    TextSink sink;
    if (!options.json) {
        sink = [&printed](std::string_view text) {
            printed = print(text);
            return printed.ok();
        };
    }
    STRATA_ASSIGN(const Completion completion, session.generate(request, sink));
    STRATA_TRY(printed);
    return print_result(options, completion, request.sampling.seed, engine->info());
}

Status check_options(const Generate& options) {
    if (const Status stops = check_stops(options.stops); !stops.ok()) {
        return STRATA_ERROR("--stop: ", stops.error().message);
    }
    if (options.ignore_end_tokens && format_of(options.format) != ResponseFormat::text) {
        return STRATA_ERROR(
            "--ignore-eos is given with --response-format json_object, whose text ends with an end "
            "token: one of the two is wanted");
    }
    return Ok{};
}

}  // namespace

Run add_generate(Options& options) {
    const auto to = std::make_shared<Generate>();
    add_model_options(options, &to->model);
    add_prompt_options(options, &to->prompt);
    options.integer("-n,--max-tokens", {0, INT64_MAX}, &to->max_tokens,
                    "Tokens to generate at most (default: until an end token or a full context)");
    add_sampling_options(options, &to->sampling);
    add_format_options(options, &to->format);
    options.texts("--stop", "TEXT", &to->stops, "End before this text; may be given several times");
    options.flag("--ignore-eos", &to->ignore_end_tokens, "Go on after the model's end tokens");
    add_drafting_options(options, &to->drafting);
    options.flag("--json", &to->json, "Print one JSON object instead of the text");
    options.check([to] { return check_options(*to); });
    return [to] { return run(*to); };
}

}  // namespace strata::cli
