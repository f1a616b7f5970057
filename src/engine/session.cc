#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "engine/parts.h"
#include "engine/sampler.h"
#include "engine/text_out.h"

namespace strata {
namespace {

bool begins_with(std::span<const std::int32_t> whole, std::span<const std::int32_t> part) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

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
    return Ok{};
}

Status Session::State::read(std::span<const std::int32_t> prompt, Completion& completion) {
    const auto start = std::chrono::steady_clock::now();
    const bool logits_lost = prompt.size() == sequence.tokens().size() && next_logits.empty();
    if (!begins_with(prompt, sequence.tokens()) || logits_lost) parts.target->reset(sequence);
    const auto rest = prompt.subspan(sequence.tokens().size());
    STRATA_TRY(parts.read_prompt(sequence, rest, this, &next_logits));
    completion.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    completion.timings.prompt_tokens = static_cast<std::int64_t>(rest.size());
    completion.timings.prompt_ms = milliseconds_since(start);
    return Ok{};
}

void Session::State::want(const spec::StepRows&, model::StepRequest& request) {
    if (parts.dump) parts.dump->want(request);
}

Status Session::State::keep(std::int64_t first, std::span<const std::int32_t> tokens,
                            const model::StepResult& result) {
    return parts.dump ? parts.dump->append(first, tokens, result) : Status(Ok{});
}

Status Session::State::run_rounds(const GenerateRequest& request,
                                  const std::vector<std::int32_t>& text, const spec::Take& take,
                                  Completion& completion) {
    DraftCounts& counts = completion.draft;
    bool ended = false;
    while (!ended && sequence.length() < sequence.context()) {
        std::int64_t rows = drafter ? drafting.rows : 1;
        rows = std::min(rows, sequence.context() - sequence.length());
        if (request.max_tokens >= 0) {
            const auto generated = static_cast<std::int64_t>(completion.tokens.size());
            rows = std::min(rows, request.max_tokens - generated);
        }
        STRATA_ASSIGN(const spec::RoundResult round,
                      spec::run_round({*parts.target, sequence, drafter.get(), this}, text, rows,
                                      take, next_logits));
        ended = round.ended;
        ++counts.windows;
        counts.drafted += round.rows - 1;
        counts.accepted += round.accepted;
        counts.draft_ms += round.draft_ms;
        counts.verify_ms += round.verify_ms;
        const auto accepted = static_cast<std::size_t>(round.accepted);
        if (counts.accepted_by_position.size() < accepted) {
            counts.accepted_by_position.resize(accepted);
        }
        for (std::size_t i = 0; i < accepted; ++i) ++counts.accepted_by_position[i];
    }
    return Ok{};
}

Status Session::State::decode(const GenerateRequest& request, TextOut& out,
                              Completion& completion) {
    if (request.max_tokens == 0) return Ok{};
    Sampler sampler(request.sampling);
    std::vector<std::int32_t> text(request.prompt);
    const spec::Take take = [&](std::span<const float> logits) -> Result<bool> {
        STRATA_ASSIGN(const std::int32_t token,
                      sampler.pick(logits, text, static_cast<std::int64_t>(text.size())));
        completion.tokens.push_back(token);
        text.push_back(token);
        completion.finish = Finish::stop;
        if (!request.ignore_end_tokens && parts.is_end_token(token)) return true;
        if (!out.push(token)) return true;
        completion.finish = Finish::length;
        return static_cast<std::int64_t>(completion.tokens.size()) == request.max_tokens;
    };
    if (drafter) {
        drafter->reset();
        completion.draft.kind = drafter->name();
    }
    STRATA_ASSIGN(const bool ended, take(next_logits));
    return ended ? Status(Ok{}) : run_rounds(request, text, take, completion);
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
    STRATA_TRY(state_->read(request.prompt, completion));
    const auto start = std::chrono::steady_clock::now();
    TextOut out(state_->parts.tokenizer, std::move(stops), sink, completion.text);
    STRATA_TRY(state_->decode(request, out, completion));
    out.finish();
    if (out.cancelled()) completion.finish = Finish::cancelled;
    completion.timings.decode_ms = milliseconds_since(start);
    completion.timings.decode_tokens = static_cast<std::int64_t>(completion.tokens.size());
    return completion;
}

std::string Session::save() const {
    const std::uint64_t count = state_->next_logits.size();
    std::string saved(reinterpret_cast<const char*>(&count), sizeof(count));
    saved.append(reinterpret_cast<const char*>(state_->next_logits.data()), count * sizeof(float));
    return saved + state_->parts.target->save(state_->sequence);
}

Status Session::restore(std::string_view saved) {
    std::uint64_t count = 0;
    const auto vocabulary = static_cast<std::uint64_t>(state_->parts.info.vocabulary);
    if (saved.size() >= sizeof(count)) std::memcpy(&count, saved.data(), sizeof(count));
    const bool sane = saved.size() >= sizeof(count) && (count == 0 || count == vocabulary) &&
                      (saved.size() - sizeof(count)) / sizeof(float) >= count;
    if (!sane) {
        return STRATA_ERROR("a checkpoint of ", saved.size(), " bytes with ", count,
                            " logits was not saved by this model, wanted 0 or ", vocabulary);
    }
    std::vector<float> logits(count);
    std::memcpy(logits.data(), saved.data() + sizeof(count), count * sizeof(float));
    STRATA_TRY(state_->parts.target->restore(state_->sequence,
                                             saved.substr(sizeof(count) + count * sizeof(float))));
    state_->next_logits = std::move(logits);
    return Ok{};
}

}  // namespace strata
