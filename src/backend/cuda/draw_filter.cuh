// Where top-k and top-p end, by histograms of how far logits are below the largest.
#pragma once

#include "backend/cuda/choose.cuh"
#include "op/draw.h"

namespace strata::cuda {

// How far below the largest, as bits in the order of the numbers.
__device__ inline unsigned depth_of(double scaled) {
    return __float_as_uint(fabsf(static_cast<float>(scaled)));
}

// Of some rows: how many, and their sum of exp(s) in units of 1 / kMassOne. No exp(s) is above 1:
// 64 bits have room for 2^24 tokens, far more than vocabularies have.
struct Heap {
    unsigned long long count;
    unsigned long long mass;
};
inline constexpr float kMassOne = 0x1p40f;

// The first depth at which a sum over all that are not deeper reaches a goal.
struct Search {
    unsigned depth;  // as far as it is known: its upper bits
    unsigned long long goal;
    Heap before;  // rows that are less deep
    Heap at;      // rows of that depth
};
inline constexpr unsigned kDepthMost = 0xffffffffu;

// Of each row: where top-k ends, and the least and the most where top-p may. Null: it is not asked.
struct Filters {
    const Search* top_k;  // [rows]
    const Search* top_p;  // [rows, 2]

    // 2: surely kept, 1: maybe, 0: not.
    __device__ int kept(const op::DrawRule& rule, std::int64_t t, unsigned depth) const {
        int sure = 2;
        if (top_k != nullptr && rule.top_k > 0) {
            const Search& end = top_k[t];
            if (depth > end.depth) return 0;
            const bool cut = end.before.count + end.at.count > end.goal;
            if (depth == end.depth && cut) sure = 1;
        }
        if (top_p != nullptr && rule.top_p < 1) {
            const Search& least = top_p[2 * t];
            if (depth > top_p[2 * t + 1].depth) return 0;
            // Before the last of equal ones.
            const Heap& at = least.at;
            const bool last = least.before.mass + at.mass - at.mass / at.count < least.goal;
            if (depth > least.depth || (depth == least.depth && !last)) sure = 1;
        }
        return sure;
    }
};

// Of `scaled` [T, N], the s of the op, below 0 or 0; all -infinity where the row has none.
Filters find_filters(Queue& queue, const op::Draw& args, MatrixView<const float> scaled);

}  // namespace strata::cuda
