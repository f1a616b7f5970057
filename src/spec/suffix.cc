#include "spec/suffix.h"

#include <algorithm>

#include "base/check.h"

namespace strata::spec {
namespace {

// Shorter ends that are tried for a token that does not follow the longest. A text that repeats
// itself has as many as there are repeats, and each guess of another drafter would walk them.
constexpr int kShorterEndsMax = 32;

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
    for (int tried = 1; found == edges_.end() && place.state > 0; ++tried) {
        // After the last of them the token by itself.
        place.state = tried < kShorterEndsMax ? at(place.state).link : 0;
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

// After strings that had a few followers: the one that most of them had, where there is one.
std::optional<SuffixDrafter::Next> SuffixDrafter::most_frequent(std::int32_t state) const {
    // Occurrences are counted to four: of more followers none has two of three.
    constexpr std::size_t kFollowersMost = 3;
    const std::vector<std::int32_t>& followers = at(state).followers;
    if (followers.size() > kFollowersMost) return {};
    int all = 0;
    int most = 0;
    Next next;
    for (const std::int32_t token : followers) {
        const int times = at(edges_.at(edge(state, token))).times;
        all += times;
        if (times <= most) continue;
        most = times;
        next = {token, Evidence::mostly};
    }
    if (3 * most < 2 * all) return {};
    if (5 * most >= 4 * all) next.evidence = Evidence::nearly;
    return next;
}

// At a place that `followed` came after once, if any is there.
std::optional<SuffixDrafter::Next> SuffixDrafter::next_of(const Place& now,
                                                          std::int32_t followed) const {
    if (!edges_.contains(edge(now.state, followed))) return {};
    const bool agree = at(now.state).followers.size() == 1;
    const Next next{followed, evidence_of(now.length, now.times, agree)};
    if (agree || now.length == 0) return next;
    return most_frequent(now.state).value_or(next);
}

SuffixDrafter::Continuation SuffixDrafter::continuation_after(std::span<const std::int32_t> text,
                                                              std::span<const std::int32_t> chain,
                                                              std::int64_t count) const {
    Continuation out;
    Place now = place();
    for (const std::int32_t token : chain) follow(token, now);
    if (now.length == 0) return out;
    const auto token_at = [&](std::size_t i) {
        if (i < text.size()) return text[i];
        i -= text.size();
        return i < chain.size() ? chain[i] : out.tokens[i - chain.size()];
    };
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t followed = token_at(static_cast<std::size_t>(now.end));
        const std::optional<Next> next = next_of(now, followed);
        // The chain need not go on as the text does.
        if (!next) break;
        out.tokens.push_back(next->token);
        out.evidence.push_back(next->evidence);
        // Where it was followed so, the same occurrence goes on. Past the end of the text the
        // guesses themselves do, as they did after the match.
        const std::int64_t end = now.end + 1;
        follow(next->token, now);
        if (next->token == followed) now.end = end;
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
