// Single ops at the widths of Flash-Next, ready to be called again and again on the same memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/op/bed.h"

namespace strata::bench {

struct OpCase {
    OpCase(std::shared_ptr<Bed> on, std::function<void()> call, MatrixView<const float> output,
           std::function<double()> counted)
        : bed(std::move(on)), run(std::move(call)), out(output), bytes(std::move(counted)) {}

    std::shared_ptr<Bed> bed;
    std::function<void()> run;  // submits the op; bed->queue().wait() sees it done
    MatrixView<const float> out;
    std::function<double()> bytes;  // that a call must move; after the first one
};

struct OpFamily {
    std::string name;
    std::function<OpCase(const OpOptions& options, std::int64_t rows)> make;
    bool prompts = false;  // a GPU gets kGpuPromptRows too
};

std::vector<OpFamily> stream_families();
std::vector<OpFamily> ngram_families();
std::vector<OpFamily> delta_families();
std::vector<OpFamily> attention_families();
std::vector<OpFamily> expert_families();
std::vector<OpFamily> draw_families();
std::vector<OpFamily> draft_families();

// All of them.
std::vector<OpFamily> op_families();

// A decode step, a verify window and a piece of a prompt.
inline constexpr std::int64_t kOpRows[] = {1, 4, 64};
// What engines read of a prompt at a time there.
inline constexpr std::int64_t kGpuPromptRows = 4096;

// FNV-1a of the output's bits.
std::uint64_t checksum_of(const OpCase& one);

}  // namespace strata::bench
