#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "engine/parts.h"
#include "engine/sampler.h"
#include "engine/text_out.h"

namespace strata {

Status check_stops(const std::vector<std::string>& stops) {
    STRATA_TRY(StopMatcher::create(stops));
    return Ok{};
}
namespace {

// Along a long prompt; and at the end of its last whole chunk, since prompts that differ often
// differ at their ends.
constexpr std::int64_t kRowsBetweenCheckpoints = 4096;

}  // namespace

Status Session::State::check_request(const GenerateRequest& request) const {
    STRATA_TRY(check(request.sampling));
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    if (length < 1 || length > sequence.context()) {
        return STRATA_ERROR("the prompt has ", length, " tokens, wanted 1 to the context of ",
                            sequence.context());
    }
    if (request.max_tokens < -1) {
        return STRATA_ERROR(request.max_tokens,
                            " tokens were asked for, wanted -1 for no limit or at least 0");
    }
    const std::int64_t vocabulary = parts.info.vocabulary;
    for (const std::int32_t token : request.prompt) {
        if (token < 0 || token >= vocabulary) {
            return STRATA_ERROR("token ", token, " is outside the vocabulary, wanted 0 to ",
                                vocabulary - 1);
        }
    }
    if (request.format == ResponseFormat::text) return Ok{};
    if (!parts.tokenizer) {
        return STRATA_ERROR(quote(parts.options.model),
                            " has no tokenizer, wanted one to hold an answer to JSON");
    }
    if (request.ignore_end_tokens) {
        return STRATA_ERROR(
            "end tokens are to be ignored, and an answer that is one JSON object ends with one");
    }
    return Ok{};
}

std::optional<AnswerRule> Session::State::rule_of(const GenerateRequest& request) {
    if (request.format == ResponseFormat::text) return std::nullopt;
    const std::vector<std::int32_t>& ends = parts.info.end_tokens;
    if (!parts.texts) parts.texts = text_tokens(*parts.tokenizer, ends);
    return AnswerRule(*parts.texts, ends, open_thinking(*parts.tokenizer, request.prompt, ends));
}

void Session::State::resume(std::span<const std::int32_t> prompt) {
    const bool logits_lost = prompt.size() == sequence.tokens().size() && next_logits.empty();
    const bool goes_on = begins_with(prompt, sequence.tokens()) && !logits_lost;
    const Checkpoints::Checkpoint* kept =
        keeps ? parts.checkpoints.find(prompt, sequence.options().mtp,
                                       goes_on ? sequence.length() : 0)
              : nullptr;
    if (kept != nullptr) {
        Checkpoints::restore(*kept, *parts.target, sequence, placed);
        next_logits = kept->logits;
        if (drafter) drafter->restore(kept->drafter);
    } else if (!goes_on) {
        parts.target->reset(sequence);
        placed.clear();
        if (drafter) drafter->reset();
    }
}

void Session::State::keep_state() {
    const bool known = !next_logits.empty();
    parts.checkpoints.keep(*parts.target, sequence, placed,
                           {next_logits, known && drafts ? drafter->save() : std::string()});
}

Status Session::State::read(std::span<const std::int32_t> prompt, Completion& completion) {
    const auto start = std::chrono::steady_clock::now();
    resume(prompt);
    const auto rest = prompt.subspan(sequence.tokens().size());
    const auto end = static_cast<std::int64_t>(prompt.size());
    if (!rest.empty()) next_logits.clear();
    const auto between = [&] {
        const std::int64_t length = sequence.length();
        const bool last = end - length <= parts.options.chunk;
        if (keeps && (last || length % kRowsBetweenCheckpoints == 0)) keep_state();
    };
    STRATA_TRY(parts.read_prompt(sequence, rest, this, &next_logits, between));
    if (keeps && !rest.empty()) keep_state();
    completion.prompt_tokens = end;
    completion.timings.prompt_tokens = static_cast<std::int64_t>(rest.size());
    completion.timings.prompt_ms = milliseconds_since(start);
    return Ok{};
}

void Session::State::want(const spec::StepRows& rows, model::StepRequest& request) {
    if (drafts) drafter->want(rows, request);
    if (parts.dump) parts.dump->want(request);
}

Status Session::State::keep(std::int64_t first, std::span<const std::int32_t> tokens,
                            const model::StepResult& result) {
    if (parts.dump) STRATA_TRY(parts.dump->append(first, tokens, result));
    return drafts ? drafter->keep(first, tokens, result) : Status(Ok{});
}

Status Session::State::run_rounds(const GenerateRequest& request,
                                  const std::vector<std::int32_t>& text, const spec::Take& take,
                                  const PickedBy& picked, spec::Draw* draw,
                                  Completion& completion) {
    spec::RoundParts round_parts{*parts.target, sequence, drafts ? drafter.get() : nullptr,
                                 this,          draw,     picked.ask,
                                 picked.take};
    DraftCounts& counts = completion.draft;
    bool ended = false;
    std::int64_t last_row = 0;
    while (!ended && sequence.length() < sequence.context()) {
        std::int64_t rows = drafts ? drafting.rows : 1;
        rows = std::min(rows, sequence.context() - sequence.length());
        if (request.max_tokens >= 0) {
            const auto generated = static_cast<std::int64_t>(completion.tokens.size());
            rows = std::min(rows, request.max_tokens - generated);
        }
        STRATA_ASSIGN(const spec::RoundResult round,
                      spec::run_round(round_parts, text, rows, take, next_logits));
        ended = round.ended;
        last_row = round.last_row;
        count(round.window, counts);
    }
    if (next_logits.empty()) {
        const auto last = parts.target->fetch_logits(last_row);
        next_logits.assign(last.begin(), last.end());
    }
    return Ok{};
}

Status Session::State::decode(const GenerateRequest& request, AnswerRule* rule, TextOut& out,
                              Completion& completion) {
    if (request.max_tokens == 0) return Ok{};
    Sampler sampler(request.sampling);
    std::vector<std::int32_t> text(request.prompt);
    const auto take_token = [&](std::int32_t token) -> Result<bool> {
        completion.tokens.push_back(token);
        text.push_back(token);
        completion.finish = Finish::stop;
        const bool thinks = rule != nullptr && !rule->holds();
        if (!request.ignore_end_tokens && !thinks && parts.is_end_token(token)) return true;
        if (!out.push(token)) return true;
        if (rule != nullptr && !rule->take(token)) return true;
        completion.finish = Finish::length;
        return static_cast<std::int64_t>(completion.tokens.size()) == request.max_tokens;
    };
    const spec::Take take = [&](std::span<const float> logits) -> Result<bool> {
        const auto token = sampler.pick(logits, text, static_cast<std::int64_t>(text.size()), rule);
        if (token.ok()) return take_token(*token);
        return STRATA_ERROR(quote(parts.info.file), ": ", token.error().message);
    };
    PickedBy picked;
    picked.ask = [&](std::span<const std::int32_t> before, std::span<const std::int32_t> window,
                     model::StepRequest& step) {
        if (!request.ignore_end_tokens) step.ends = parts.info.end_tokens;
        sampler.ask(before, window, step);
    };
    picked.take = [&](const model::RowPick& pick) -> Result<std::optional<bool>> {
        const auto token = sampler.pick_of(pick, static_cast<std::int64_t>(text.size()), rule);
        if (!token) return std::optional<bool>();
        STRATA_ASSIGN(const bool ended, take_token(*token));
        return std::optional(ended);
    };
    begin_counts(completion.draft);
    STRATA_ASSIGN(const bool ended, take(next_logits));
    if (ended) return Ok{};
    spec::Draw* const draw = sampler.plain() ? nullptr : &sampler;
    Status status = run_rounds(request, text, take, picked, draw, completion);
    // It may have seen a token that the sequence does not keep.
    if (!status.ok() && drafter) drafter->reset();
    return status;
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

std::span<const std::int32_t> Session::tokens() const { return state_->sequence.tokens(); }

Result<Completion> Session::generate(const GenerateRequest& request, const TextSink& sink) {
    STRATA_TRY(state_->check_request(request));
    StopMatcher stops;
    if (!request.stops.empty()) {
        STRATA_ASSIGN(stops, StopMatcher::create(request.stops));
    }
    Completion completion;
    completion.timings.load_ms = state_->parts.load_ms;
    // The first token is the prompt's.
    const bool several = request.max_tokens < 0 || request.max_tokens > 2;
    state_->drafts = state_->drafter != nullptr && several;
    state_->keeps = request.keep_states && state_->parts.keeps_states();
    STRATA_TRY(state_->read(request.prompt, completion));
    std::optional<AnswerRule> rule = state_->rule_of(request);
    const auto start = std::chrono::steady_clock::now();
    TextOut out(state_->parts.tokenizer, std::move(stops), sink, completion.text);
    STRATA_TRY(state_->decode(request, rule ? &*rule : nullptr, out, completion));
    completion.whole = !rule || rule->complete();
    if (state_->keeps) state_->keep_state();
    // Of work that no step came after.
    STRATA_TRY(state_->parts.target->status());
    out.finish();
    if (out.cancelled()) completion.finish = Finish::cancelled;
    completion.timings.decode_ms = milliseconds_since(start);
    completion.timings.decode_tokens = static_cast<std::int64_t>(completion.tokens.size());
    return completion;
}

namespace {

// A length in 8 bytes, then so many bytes.
void put(std::string& out, std::string_view bytes) {
    const std::uint64_t size = bytes.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof(size));
    out += bytes;
}

// Takes what put() wrote off the start of `from`.
Result<std::string_view> take_off(std::string_view& from) {
    std::uint64_t size = 0;
    if (from.size() >= sizeof(size)) std::memcpy(&size, from.data(), sizeof(size));
    if (from.size() < sizeof(size) || from.size() - sizeof(size) < size) {
        return STRATA_ERROR("a checkpoint ends after ", from.size(), " bytes of a part, wanted ",
                            size, " more");
    }
    const std::string_view bytes = from.substr(sizeof(size), size);
    from.remove_prefix(sizeof(size) + size);
    return bytes;
}

}  // namespace

Result<std::string> Session::save() const {
    const auto logits = std::as_bytes(std::span(state_->next_logits));
    std::string saved;
    put(saved, {reinterpret_cast<const char*>(logits.data()), logits.size()});
    put(saved, state_->drafter ? state_->drafter->save() : std::string());
    saved += state_->parts.target->save(state_->sequence);
    STRATA_TRY(state_->parts.target->status());
    return saved;
}

Status Session::restore(std::string_view saved) {
    const auto vocabulary = static_cast<std::uint64_t>(state_->parts.info.vocabulary);
    STRATA_ASSIGN(const std::string_view bytes, take_off(saved));
    if (!bytes.empty() && bytes.size() != vocabulary * sizeof(float)) {
        return STRATA_ERROR("a checkpoint with ", bytes.size(),
                            " bytes of logits was not saved by this model, wanted 0 or ",
                            vocabulary * sizeof(float));
    }
    STRATA_ASSIGN(const std::string_view drafter, take_off(saved));
    STRATA_TRY(state_->parts.target->restore(state_->sequence, saved));
    state_->placed.clear();
    state_->next_logits.resize(bytes.size() / sizeof(float));
    std::memcpy(state_->next_logits.data(), bytes.data(), bytes.size());
    if (state_->drafter) state_->drafter->restore(drafter);
    return state_->parts.target->status();
}

}  // namespace strata
