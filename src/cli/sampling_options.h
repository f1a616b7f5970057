// Options that say how tokens are drawn; what is not given is as the model's file has it.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/options.h"
#include "strata/engine.h"

namespace strata::cli {

struct SamplingOptions {
    std::optional<double> temperature;
    std::optional<std::int64_t> top_k;
    std::optional<double> top_p;
    std::optional<double> min_p;
    std::optional<double> repeat_penalty;
    std::optional<double> presence_penalty;
    std::optional<double> frequency_penalty;
    std::optional<std::int64_t> penalty_window;
    std::optional<std::uint64_t> seed;
};

void add_sampling_options(Options& options, SamplingOptions* to);

// `file` with what was given in its place; without a given seed, one that the machine draws.
Sampling chosen(const SamplingOptions& given, const Sampling& file);

}  // namespace strata::cli
