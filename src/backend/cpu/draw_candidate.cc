#include "backend/cpu/draw_candidate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"

namespace strata::cpu {
namespace {

struct Candidate {
    double value;
    std::int32_t token;
    std::int64_t at;

    // Larger first, of equal ones the lower token.
    bool operator<(const Candidate& other) const {
        return value != other.value ? value > other.value : token < other.token;
    }
};

// How often row i penalizes for a token.
std::int64_t count_of(const op::DflashSelect& args, std::int64_t i, std::int32_t token) {
    const op::DrawRule& rule = *args.rule;
    std::int64_t count = 0;
    for (std::int64_t p = 0; p < rule.penalized; ++p) {
        if (args.penalized[p].token == token) count += args.penalized[p].count;
    }
    for (std::int64_t j = 0; j < i; ++j) {
        const std::int32_t leaves = rule.leaves[j];
        count += args.path[j] == token ? 1 : 0;
        count -= (leaves < -1 ? args.path[-2 - leaves] : leaves) == token ? 1 : 0;
    }
    return count;
}

// Of candidates that are sorted those whose sum of exp(value) reaches `share` of all of them.
void keep_share(double share, std::vector<Candidate>& sorted) {
    double sum = 0;
    for (const Candidate& c : sorted) sum += std::exp(c.value);
    double reached = 0;
    std::size_t kept = 0;
    while (kept < sorted.size() && (kept == 0 || reached < share)) {
        reached += std::exp(sorted[kept++].value) / sum;
    }
    sorted.resize(kept);
}

}  // namespace

std::int64_t draw_candidate(const op::DflashSelect& args, std::int64_t i) {
    const op::DrawRule& rule = *args.rule;
    std::vector<Candidate> all;
    for (std::int64_t c = 0; c < args.candidates.cols; ++c) {
        const std::int32_t token = args.candidates.row(i)[c];
        const auto logit = static_cast<double>(args.scores.row(i)[c]);
        const std::int64_t count = count_of(args, i, token);
        all.push_back({count > 0 ? op::penalized_logit(rule, logit, count) : logit, token, c});
    }
    std::sort(all.begin(), all.end());
    if (rule.temperature == 0) return all.front().at;
    const double largest = all.front().value;
    for (Candidate& c : all) c.value = (c.value - largest) / rule.temperature;
    if (rule.top_k > 0 && rule.top_k < std::ssize(all)) {
        all.resize(static_cast<std::size_t>(rule.top_k));
    }
    if (rule.top_p < 1) keep_share(rule.top_p, all);
    std::erase_if(all, [&](const Candidate& c) { return c.value < rule.lowest; });
    for (Candidate& c : all) {
        c.value += gumbel(rule.seed, static_cast<std::uint64_t>(rule.position + i),
                          static_cast<std::uint32_t>(c.token));
    }
    return std::min_element(all.begin(), all.end())->at;
}

}  // namespace strata::cpu
