#include "cli/sampling_options.h"

#include <random>

namespace strata::cli {
namespace {

// 32 bits, so that every reader of the JSON output holds the seed exactly.
std::uint64_t random_seed() { return std::random_device{}(); }

Sampling merged(const SamplingOptions& given, Sampling sampling) {
    sampling.temperature = given.temperature.value_or(sampling.temperature);
    sampling.top_k = given.top_k.value_or(sampling.top_k);
    sampling.top_p = given.top_p.value_or(sampling.top_p);
    sampling.min_p = given.min_p.value_or(sampling.min_p);
    sampling.repeat_penalty = given.repeat_penalty.value_or(sampling.repeat_penalty);
    sampling.presence_penalty = given.presence_penalty.value_or(sampling.presence_penalty);
    sampling.frequency_penalty = given.frequency_penalty.value_or(sampling.frequency_penalty);
    sampling.penalty_window = given.penalty_window.value_or(sampling.penalty_window);
    sampling.seed = given.seed.value_or(sampling.seed);
    return sampling;
}

}  // namespace

void add_sampling_options(Options& options, SamplingOptions* to) {
    options.real("--temp", &to->temperature,
                 "Temperature; 0 takes the likeliest token each time. What is not given, here and "
                 "below, is as the model's file says, else the default (0)");
    options.integer("--top-k", {0, INT32_MAX}, &to->top_k,
                    "Draw among the N likeliest tokens; 0: among all (default: 0)");
    options.real("--top-p", &to->top_p,
                 "Draw among the fewest tokens whose probabilities reach this sum (default: "
                 "1, all)");
    options.real("--min-p", &to->min_p,
                 "Leave out tokens less likely than this times the likeliest (default: 0, none)");
    options.real("--repeat-penalty", &to->repeat_penalty,
                 "Divide positive logits of tokens seen before by this, multiply negative ones "
                 "(default: 1)");
    options.real("--presence-penalty", &to->presence_penalty,
                 "Take this from the logit of each token seen before (default: 0)");
    options.real("--frequency-penalty", &to->frequency_penalty,
                 "Take this from a token's logit for each time it was seen (default: 0)");
    options.integer("--repeat-last-n", {-1, INT32_MAX}, &to->penalty_window,
                    "How many of the last tokens count as seen; 0: none, -1: all (default: 64)");
    options.seed("--seed", &to->seed,
                 "Seed of the draws: the same seed gives the same text (default: a random one)");
    options.check([to] { return check(merged(*to, Sampling{})); });
}

Sampling chosen(const SamplingOptions& given, const Sampling& file) {
    Sampling sampling = merged(given, file);
    if (!given.seed) sampling.seed = random_seed();
    return sampling;
}

}  // namespace strata::cli
