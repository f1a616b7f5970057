#include "spec/auto_drafter.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace strata::spec {
namespace {

// Tokens that a suffix guess is judged by.
constexpr std::int64_t kExpectedMax = 15;

}  // namespace

AutoDrafter::AutoDrafter(std::vector<std::unique_ptr<Drafter>> drafters, Policy& policy)
    : drafters_(std::move(drafters)), policy_(policy) {
    policy_.fade();
}

// Every token is one that the last suffix guess can be judged by, whether or not it was verified.
void AutoDrafter::read(std::span<const std::int32_t> text) {
    const std::vector<std::int32_t>& tokens = expected_.guesses.tokens;
    const auto come = text.subspan(std::min(expected_.at, text.size()));
    const auto known = static_cast<std::ptrdiff_t>(std::min(come.size(), tokens.size()));
    const auto right =
        std::mismatch(tokens.begin(), tokens.begin() + known, come.begin()).first - tokens.begin();
    policy_.learn_suffix(expected_.guesses.evidence, right, right < known);
    suffix_.read(text);
    expected_ = {text.size(), suffix_.continuation(text, kExpectedMax)};
}

Result<Guesses> AutoDrafter::guess(const GuessRequest& request) {
    read(request.text);
    computed_ = 0;
    confidence_.clear();
    source_ = "none";
    behind_.clear();
    for (const auto& drafter : drafters_) behind_.push_back(drafter->behind());
    const Policy::Choice choice =
        policy_.choose({request.count, expected_.guesses.evidence, behind_});
    if (choice.who == Policy::kNobody) return Guesses{};
    if (choice.who == Policy::kSuffix) {
        source_ = suffix_.name();
        const auto first = expected_.guesses.tokens.begin();
        return Guesses{{first, first + choice.count}, {}, 0};
    }
    return guess_with(static_cast<std::size_t>(choice.who), choice.count, request);
}

Result<Guesses> AutoDrafter::guess_with(std::size_t drafter, std::int64_t count,
                                        const GuessRequest& request) {
    GuessRequest asked = request;
    asked.count = count;
    asked.go_on = [&](std::span<const std::int32_t> chain, std::span<const float> confidence) {
        return policy_.go_on(confidence,
                             suffix_.continuation_after(request.text, chain, 1).evidence);
    };
    source_ = drafters_[drafter]->name();
    STRATA_ASSIGN(Guesses guesses, drafters_[drafter]->guess(asked));
    computed_ = std::max<std::int64_t>(guesses.computed, 1);
    const auto worth = static_cast<std::size_t>(policy_.worth(guesses.confidence));
    const bool all = worth == guesses.tokens.size();
    guesses.tokens.resize(worth);
    guesses.confidence.resize(worth);
    confidence_ = guesses.confidence;
    if (all && worth > 0) add_suffix(request, guesses);
    return guesses;
}

// What followed guesses like these earlier in the text costs a row each and nothing more.
void AutoDrafter::add_suffix(const GuessRequest& request, Guesses& guesses) const {
    const std::int64_t room = request.count - std::ssize(guesses.tokens);
    if (room < 1) return;
    const SuffixDrafter::Continuation more =
        suffix_.continuation_after(request.text, guesses.tokens, room);
    const std::int64_t count = policy_.worth_after(guesses.confidence, more.evidence);
    guesses.tokens.insert(guesses.tokens.end(), more.tokens.begin(), more.tokens.begin() + count);
}

void AutoDrafter::verified(const Verified& window) {
    policy_.learn(computed_, confidence_, window);
}

void AutoDrafter::reset() {
    for (const auto& drafter : drafters_) drafter->reset();
    suffix_.reset();
    expected_ = {};
    policy_.fade();
}

void AutoDrafter::want(const StepRows& rows, model::StepRequest& request) {
    for (const auto& drafter : drafters_) drafter->want(rows, request);
}

Status AutoDrafter::keep(std::int64_t first, std::span<const std::int32_t> tokens,
                         const model::StepResult& result) {
    for (const auto& drafter : drafters_) STRATA_TRY(drafter->keep(first, tokens, result));
    return Ok{};
}

// Each drafter's bytes after their number.
std::string AutoDrafter::save() {
    std::string saved;
    for (const auto& drafter : drafters_) {
        const std::string bytes = drafter->save();
        const std::uint64_t size = bytes.size();
        saved.append(reinterpret_cast<const char*>(&size), sizeof(size));
        saved += bytes;
    }
    return saved;
}

void AutoDrafter::restore(std::string_view saved) {
    reset();
    for (const auto& drafter : drafters_) {
        std::uint64_t size = 0;
        if (saved.size() < sizeof(size)) return;
        std::memcpy(&size, saved.data(), sizeof(size));
        saved.remove_prefix(sizeof(size));
        if (saved.size() < size) return;
        drafter->restore(saved.substr(0, size));
        saved.remove_prefix(size);
    }
}

}  // namespace strata::spec
