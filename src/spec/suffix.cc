#include "spec/suffix.h"

#include <algorithm>

#include "base/check.h"

namespace strata::spec {

void SuffixDrafter::reset() {
    states_.assign(1, State{});
    edges_.clear();
    known_ = 0;
    last_ = 0;
    match_ = {};
}

std::int32_t SuffixDrafter::add_state(std::int64_t length, std::int64_t end) {
    State state;
    state.length = length;
    state.end = end;
    states_.push_back(std::move(state));
    return static_cast<std::int32_t>(states_.size() - 1);
}

void SuffixDrafter::set_edge(std::int32_t from, std::int32_t token, std::int32_t to) {
    const auto [place, added] = edges_.insert_or_assign(edge(from, token), to);
    if (added) states_[static_cast<std::size_t>(from)].followers.push_back(token);
}

// Gives the shorter strings of `state`, those that end an edge from `from`, a state of their own.
std::int32_t SuffixDrafter::split(std::int32_t from, std::int32_t token, std::int32_t state) {
    const State original = states_[static_cast<std::size_t>(state)];
    const std::int64_t length = states_[static_cast<std::size_t>(from)].length + 1;
    const std::int32_t shorter = add_state(length, original.end);
    states_.back().link = original.link;
    for (const std::int32_t follower : original.followers) {
        set_edge(shorter, follower, edges_.at(edge(state, follower)));
    }
    states_[static_cast<std::size_t>(state)].link = shorter;
    for (std::int32_t p = from; p >= 0; p = states_[static_cast<std::size_t>(p)].link) {
        const auto found = edges_.find(edge(p, token));
        if (found == edges_.end() || found->second != state) break;
        found->second = shorter;
    }
    return shorter;
}

void SuffixDrafter::extend(std::int32_t token) {
    const std::int64_t end = ++known_;
    const std::int32_t whole = add_state(states_[static_cast<std::size_t>(last_)].length + 1, end);
    std::int32_t p = last_;
    while (p >= 0 && !edges_.contains(edge(p, token))) {
        set_edge(p, token, whole);
        p = states_[static_cast<std::size_t>(p)].link;
    }
    std::int32_t link = 0;
    if (p >= 0) {
        link = edges_.at(edge(p, token));
        const bool exact = states_[static_cast<std::size_t>(link)].length ==
                           states_[static_cast<std::size_t>(p)].length + 1;
        if (!exact) link = split(p, token, link);
    }
    states_[static_cast<std::size_t>(whole)].link = link;
    last_ = whole;
    State& repeated = states_[static_cast<std::size_t>(link)];
    match_ = {repeated.length, repeated.end};
    repeated.end = end;
}

void SuffixDrafter::read(std::span<const std::int32_t> text) {
    STRATA_CHECK(static_cast<std::int64_t>(text.size()) >= known_);
    while (known_ < static_cast<std::int64_t>(text.size())) {
        extend(text[static_cast<std::size_t>(known_)]);
    }
}

std::vector<std::int32_t> SuffixDrafter::continuation(std::span<const std::int32_t> text,
                                                      std::int64_t count) const {
    std::vector<std::int32_t> tokens;
    // Past the end of the text the guesses themselves go on.
    for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(match_.end + i);
        tokens.push_back(at < text.size() ? text[at] : tokens[at - text.size()]);
    }
    return tokens;
}

Result<Guesses> SuffixDrafter::guess(const GuessRequest& request) {
    read(request.text);
    if (match_.length < match_min_) return Guesses{};
    return Guesses{continuation(request.text, std::min(request.count, match_.length)), {}, 0};
}

}  // namespace strata::spec
