#include "grammar/token_sets.h"

#include <algorithm>
#include <utility>

namespace strata::grammar {

bool TokenSet::empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word == 0; });
}

TokenSets::TokenSets(std::vector<std::string_view> bytes) : bytes_(std::move(bytes)) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
        if (!bytes_[i].empty()) ordered_.push_back(static_cast<std::int32_t>(i));
    }
    std::ranges::stable_sort(ordered_, {},
                             [this](std::int32_t token) { return this->bytes(token); });
    std::string_view before;
    for (const std::int32_t token : ordered_) {
        const std::string_view own = this->bytes(token);
        const auto differ = std::ranges::mismatch(before, own);
        common_.push_back(static_cast<std::size_t>(differ.in2 - own.begin()));
        before = own;
    }
}

std::string_view TokenSets::bytes(std::int32_t token) const {
    const auto at = static_cast<std::size_t>(token);
    return at < bytes_.size() ? bytes_[at] : std::string_view();
}

bool TokenSets::may_follow(const Json& state, std::int32_t token) const {
    Json after = state;
    const std::string_view own = bytes(token);
    return !own.empty() && after.push(own);
}

const TokenSet& TokenSets::following(const Json& state) {
    const auto kept = kept_.find(state);
    if (kept != kept_.end()) return kept->second;
    if (kept_.size() == kKeptMax) kept_.erase(kept_.begin());
    return kept_.emplace(state, find_following(state)).first->second;
}

TokenSet TokenSets::find_following(const Json& state) const {
    TokenSet set(bytes_.size());
    // After each of the bytes of the token before that were allowed, none of them first.
    std::vector<Json> after = {state};
    for (std::size_t i = 0; i < ordered_.size(); ++i) {
        if (common_[i] >= after.size()) continue;  // begins with the byte that was not
        after.resize(common_[i] + 1);
        const std::string_view own = bytes(ordered_[i]);
        for (const char byte : own.substr(common_[i])) {
            Json next = after.back();
            if (!next.push(static_cast<std::uint8_t>(byte))) break;
            after.push_back(next);
        }
        if (after.size() == own.size() + 1) set.add(ordered_[i]);
    }
    return set;
}

}  // namespace strata::grammar
