#include "spec/suffix.h"

#include <algorithm>

#include "base/check.h"

namespace strata::spec {
namespace {

// Of a guess after `length` tokens that occurred `times` times, always with the same token after
// them where `agree`.
Evidence evidence_of(std::int64_t length, int times, bool agree) {
    if (!agree) return Evidence::differ;
    if (times > 2) return length == 1 ? Evidence::three_times_1 : Evidence::three_times;
    if (times == 2) return length == 1 ? Evidence::twice_1 : Evidence::twice;
    if (length < 4) {
        constexpr Evidence kShort[] = {Evidence::once_1, Evidence::once_2, Evidence::once_3};
        return kShort[length - 1];
    }
    if (length < 10) return length < 6 ? Evidence::once_4 : Evidence::once_6;
    return length < 18 ? Evidence::once_10 : Evidence::once_18;
}

}  // namespace

void SuffixDrafter::reset() {
    states_.assign(1, State{});
    edges_.clear();
    known_ = 0;
    last_ = 0;
    match_end_ = 0;
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
    if (added) at(from).followers.push_back(token);
}

// Gives the shorter strings of `state`, those that end an edge from `from`, a state of their own.
std::int32_t SuffixDrafter::split(std::int32_t from, std::int32_t token, std::int32_t state) {
    const State original = at(state);
    const std::int32_t shorter = add_state(at(from).length + 1, original.end);
    at(shorter).link = original.link;
    at(shorter).times = original.times;
    for (const std::int32_t follower : original.followers) {
        set_edge(shorter, follower, edges_.at(edge(state, follower)));
    }
    at(state).link = shorter;
    for (std::int32_t p = from; p >= 0; p = at(p).link) {
        const auto found = edges_.find(edge(p, token));
        if (found == edges_.end() || found->second != state) break;
        found->second = shorter;
    }
    return shorter;
}

void SuffixDrafter::extend(std::int32_t token) {
    const std::int64_t end = ++known_;
    const std::int32_t whole = add_state(at(last_).length + 1, end);
    std::int32_t p = last_;
    while (p >= 0 && !edges_.contains(edge(p, token))) {
        set_edge(p, token, whole);
        p = at(p).link;
    }
    std::int32_t link = 0;
    if (p >= 0) {
        link = edges_.at(edge(p, token));
        if (at(link).length != at(p).length + 1) link = split(p, token, link);
    }
    at(whole).link = link;
    last_ = whole;
    for (std::int32_t s = whole; s > 0 && at(s).times <= kTimesMax; s = at(s).link) ++at(s).times;
    match_end_ = at(link).end;
    at(link).end = end;
}

void SuffixDrafter::read(std::span<const std::int32_t> text) {
    STRATA_CHECK(static_cast<std::int64_t>(text.size()) >= known_);
    while (known_ < static_cast<std::int64_t>(text.size())) {
        extend(text[static_cast<std::size_t>(known_)]);
    }
}

SuffixDrafter::Place SuffixDrafter::place() const {
    const std::int32_t link = std::max(at(last_).link, 0);
    return {link, at(link).length, match_end_, std::max(at(link).times - 1, 0)};
}

// The text ends with one token more.
void SuffixDrafter::follow(std::int32_t token, Place& place) const {
    auto found = edges_.find(edge(place.state, token));
    while (found == edges_.end() && place.state > 0) {
        place.state = at(place.state).link;
        place.length = at(place.state).length;
        found = edges_.find(edge(place.state, token));
    }
    if (found == edges_.end()) {
        place = {};
        return;
    }
    const Place whole = this->place();
    if (found->second == last_ || found->second == whole.state) {
        place = whole;
        return;
    }
    const State& state = at(found->second);
    place = {found->second, place.length + 1, state.end, state.times};
}

SuffixDrafter::Match SuffixDrafter::match() const {
    const Place found = place();
    return {found.length, found.end, found.times};
}

SuffixDrafter::Continuation SuffixDrafter::continuation_after(std::span<const std::int32_t> text,
                                                              std::span<const std::int32_t> chain,
                                                              std::int64_t count) const {
    Continuation out;
    const Place whole = place();
    Place now = whole;
    for (const std::int32_t token : chain) follow(token, now);
    if (now.length == 0) return out;
    const std::int64_t end = now.end;
    const auto token_at = [&](std::size_t i) {
        if (i < text.size()) return text[i];
        i -= text.size();
        return i < chain.size() ? chain[i] : out.tokens[i - chain.size()];
    };
    for (std::int64_t i = 0; i < count; ++i) {
        // Past the end of the text the guesses themselves go on, as they did after the match.
        if (now.state == last_) now = whole;
        const std::int32_t token = token_at(static_cast<std::size_t>(end + i));
        const auto next = edges_.find(edge(now.state, token));
        // The chain need not go on as the text does.
        if (next == edges_.end()) break;
        out.tokens.push_back(token);
        out.evidence.push_back(
            evidence_of(now.length, now.times, at(now.state).followers.size() == 1));
        now.state = next->second;
        now.times = at(now.state).times;
        ++now.length;
    }
    return out;
}

Result<Guesses> SuffixDrafter::guess(const GuessRequest& request) {
    read(request.text);
    Continuation found = continuation(request.text, request.count);
    double chance = 1;
    std::size_t count = 0;
    for (; count < found.tokens.size(); ++count) {
        chance *= kEvidenceShare[static_cast<std::size_t>(found.evidence[count])];
        if (chance < kSuffixChanceMin) break;
    }
    found.tokens.resize(count);
    return Guesses{std::move(found.tokens), {}, 0};
}

}  // namespace strata::spec
