#include <algorithm>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "strata/eval.h"

namespace strata {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Prompts {
    std::string kind;
    std::vector<Tokens> prompts;
};

// Fixed, so that two runs try the same.
class RandomTokens {
  public:
    explicit RandomTokens(std::int64_t vocabulary)
        : vocabulary_(static_cast<std::uint64_t>(vocabulary)) {}

    // SplitMix64 (Steele, Lea, Flood 2014).
    std::int32_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return static_cast<std::int32_t>((z ^ (z >> 31)) % vocabulary_);
    }

  private:
    std::uint64_t vocabulary_;
    std::uint64_t state_ = 0;
};

Prompts random_prompts(const DraftTrialRequest& request, std::int64_t vocabulary) {
    RandomTokens random(vocabulary);
    Prompts out{"random", {}};
    out.prompts.resize(static_cast<std::size_t>(request.prompts));
    for (Tokens& prompt : out.prompts) {
        prompt.resize(static_cast<std::size_t>(request.prompt_tokens));
        std::generate(prompt.begin(), prompt.end(), [&] { return random.next(); });
    }
    return out;
}

Result<Prompts> cut_prompts(const Engine& engine, const TextKind& kind,
                            const DraftTrialRequest& request) {
    STRATA_ASSIGN(const Tokens tokens, engine.tokenize(kind.text));
    const std::int64_t spare = std::ssize(tokens) - request.prompt_tokens;
    if (spare < request.prompts - 1) {
        return STRATA_ERROR("the text ", quote(kind.name), " has ", tokens.size(),
                            " tokens, wanted at least ",
                            request.prompt_tokens + request.prompts - 1, " to cut ",
                            request.prompts, " prompts of ", request.prompt_tokens, " from");
    }
    Prompts out{kind.name, {}};
    for (std::int64_t i = 0; i < request.prompts; ++i) {
        const auto first =
            tokens.begin() + spare * i / std::max<std::int64_t>(request.prompts - 1, 1);
        out.prompts.emplace_back(first, first + request.prompt_tokens);
    }
    return out;
}

// Lines that say something.
std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
    }
    return lines;
}

// The question that is asked, or the text as it is; `number` is for errors.
Result<Tokens> whole_prompt(const Engine& engine, const TextKind& kind, const std::string& text,
                            std::int64_t number, const DraftTrialRequest& request) {
    const Message question{"user", text};
    STRATA_ASSIGN(Tokens prompt, kind.questions ? engine.chat_prompt({&question, 1}, false)
                                                : engine.tokenize(text));
    if (prompt.empty()) {
        return STRATA_ERROR("prompt ", number, " of ", quote(kind.name),
                            " has no tokens, wanted at least 1");
    }
    if (std::ssize(prompt) + request.max_tokens <= engine.info().context) return prompt;
    return STRATA_ERROR("prompt ", number, " of ", quote(kind.name), " has ", prompt.size(),
                        " tokens, wanted at most ", engine.info().context - request.max_tokens,
                        " so that ", request.max_tokens, " more fit the context");
}

Result<Prompts> ask_questions(const Engine& engine, const TextKind& kind,
                              const DraftTrialRequest& request) {
    const std::vector<std::string> lines = lines_of(kind.text);
    if (std::ssize(lines) < request.prompts) {
        return STRATA_ERROR("the text ", quote(kind.name), " has ", lines.size(),
                            " questions, one a line, wanted at least ", request.prompts);
    }
    Prompts out{kind.name, {}};
    for (std::int64_t i = 0; i < request.prompts; ++i) {
        const std::int64_t line = std::ssize(lines) * i / request.prompts;
        STRATA_ASSIGN(
            Tokens prompt,
            whole_prompt(engine, kind, lines[static_cast<std::size_t>(line)], line + 1, request));
        out.prompts.push_back(std::move(prompt));
    }
    return out;
}

Result<Prompts> prompts_of(const Engine& engine, const TextKind& kind,
                           const DraftTrialRequest& request) {
    if (kind.given.empty()) {
        return kind.questions ? ask_questions(engine, kind, request)
                              : cut_prompts(engine, kind, request);
    }
    Prompts out{kind.name, {}};
    for (const std::string& text : kind.given) {
        STRATA_ASSIGN(Tokens prompt,
                      whole_prompt(engine, kind, text, std::ssize(out.prompts) + 1, request));
        out.prompts.push_back(std::move(prompt));
    }
    return out;
}

Status check_request(const DraftTrialRequest& request, const ModelInfo& info) {
    STRATA_TRY(check(request.sampling));
    if (request.prompts < 1 || request.prompt_tokens < 1 || request.max_tokens < 1) {
        return STRATA_ERROR(request.prompts, " prompts of ", request.prompt_tokens,
                            " tokens continued by ", request.max_tokens,
                            " were asked for, wanted at least 1 of each");
    }
    if (request.prompts > kTrialPromptsMax) {
        return STRATA_ERROR(request.prompts, " prompts were asked for, wanted at most ",
                            kTrialPromptsMax);
    }
    if (request.shards < 1 || request.shard < 0 || request.shard >= request.shards) {
        return STRATA_ERROR("shard ", request.shard, " of ", request.shards,
                            " was asked for, wanted one of 0 to the number of shards less 1");
    }
    if (request.prompt_tokens > info.context || request.max_tokens > info.context ||
        request.prompt_tokens + request.max_tokens > info.context) {
        return STRATA_ERROR("prompts of ", request.prompt_tokens, " tokens continued by ",
                            request.max_tokens, " were asked for, wanted at most the context of ",
                            info.context, " together");
    }
    return Ok{};
}

std::int32_t token_at(const Tokens& tokens, std::size_t i) {
    return i < tokens.size() ? tokens[i] : -1;
}

// Adds a run to its trial; `wanted` is the text without a drafter.
void add_run(std::int64_t prompt, const Completion& run, const Tokens& wanted, DraftTrial& trial) {
    ++trial.prompts;
    trial.tokens += std::ssize(run.tokens);
    trial.decode_ms += run.timings.decode_ms;
    add(run.draft, trial.counts);
    if (run.tokens == wanted) return;
    ++trial.different;
    if (trial.first) return;
    std::size_t at = 0;
    while (token_at(run.tokens, at) == token_at(wanted, at)) ++at;
    trial.first = {prompt, static_cast<std::int64_t>(at), token_at(wanted, at),
                   token_at(run.tokens, at)};
}

// Counts the texts with a drafter, and says which of them are this process's.
class Runs {
  public:
    Runs(const DraftTrialRequest& request, std::int64_t all, const EvalProgress& progress)
        : request_(request), all_(all), progress_(progress) {
        const std::int64_t shards = request.shards;
        total_ = (all - request.shard + shards - 1) / shards;
    }

    // Error: none of them is.
    Status check() const {
        if (total_ > 0) return Ok{};
        return STRATA_ERROR("part ", request_.shard + 1, " of ", request_.shards,
                            " was asked for, and there are ", all_,
                            " texts with a drafter: at most as many parts are wanted");
    }
    bool mine() { return number_++ % request_.shards == request_.shard; }
    Status told() {
        ++done_;
        if (!progress_ || progress_(done_, total_)) return Ok{};
        return STRATA_ERROR("interrupted after ", done_, " of ", total_, " texts");
    }

  private:
    const DraftTrialRequest& request_;
    const std::int64_t all_;
    const EvalProgress& progress_;
    std::int64_t number_ = 0;
    std::int64_t done_ = 0;
    std::int64_t total_ = 0;
};

// All trials of one kind of text.
class KindTrials {
  public:
    KindTrials(Engine& engine, const DraftTrialRequest& request, const std::string& kind)
        : engine_(engine), request_(request) {
        trials_.push_back({.kind = kind, .drafting = {}});
        for (const Drafting& one : request.draftings) {
            trials_.push_back({.kind = kind, .drafting = one});
        }
    }

    // `seed_offset` counts the prompts of all kinds.
    Status run(std::int64_t prompt, const Tokens& tokens, std::uint64_t seed_offset, Runs& runs) {
        GenerateRequest generate;
        generate.keep_states = false;
        generate.prompt = tokens;
        generate.max_tokens = request_.max_tokens;
        generate.sampling = request_.sampling;
        generate.sampling.seed += seed_offset;
        std::vector<std::size_t> turns = {kPlain};
        for (std::size_t i = kPlain + 1; i < trials_.size(); ++i) {
            if (runs.mine()) turns.push_back(i);
        }
        // Each is first as often as the others, and last.
        const auto first = static_cast<std::size_t>(prompt) % turns.size();
        std::rotate(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(first), turns.end());
        std::vector<Completion> done(trials_.size());
        for (const std::size_t i : turns) {
            STRATA_ASSIGN(done[i], complete(generate, trials_[i].drafting));
            if (i != kPlain) STRATA_TRY(runs.told());
        }
        for (const std::size_t i : turns) {
            add_run(prompt, done[i], done[kPlain].tokens, trials_[i]);
        }
        return Ok{};
    }

    std::vector<DraftTrial>& trials() { return trials_; }

  private:
    static constexpr std::size_t kPlain = 0;  // the trial without a drafter

    Result<Completion> complete(const GenerateRequest& generate, const Drafting& drafting) {
        const std::int64_t tokens = std::ssize(generate.prompt) + generate.max_tokens;
        STRATA_ASSIGN(auto session, engine_.make_session(tokens, drafting));
        return session.generate(generate);
    }

    Engine& engine_;
    const DraftTrialRequest& request_;
    std::vector<DraftTrial> trials_;
};

}  // namespace

Result<std::vector<DraftTrial>> draft_trials(Engine& engine, const DraftTrialRequest& request,
                                             const EvalProgress& progress) {
    STRATA_TRY(check_request(request, engine.info()));
    std::vector<Prompts> all;
    for (const TextKind& kind : request.kinds) {
        STRATA_ASSIGN(Prompts prompts, prompts_of(engine, kind, request));
        all.push_back(std::move(prompts));
    }
    if (all.empty()) all.push_back(random_prompts(request, engine.info().vocabulary));
    std::int64_t count = 0;
    for (const Prompts& kind : all) count += std::ssize(kind.prompts);
    Runs runs(request, count * std::ssize(request.draftings), progress);
    if (!request.draftings.empty()) STRATA_TRY(runs.check());
    std::uint64_t done = 0;
    std::vector<DraftTrial> out;
    for (const Prompts& kind : all) {
        KindTrials trials(engine, request, kind.kind);
        for (std::int64_t i = 0; i < std::ssize(kind.prompts); ++i) {
            STRATA_TRY(trials.run(i, kind.prompts[static_cast<std::size_t>(i)], done++, runs));
        }
        for (DraftTrial& trial : trials.trials()) out.push_back(std::move(trial));
    }
    return out;
}

}  // namespace strata
