// What the two kernels of a block's attention share: parts of what a row sees, and how softmaxes
// over parts become one.
#pragma once

#include "backend/cuda/dflash.h"
#include "backend/cuda/norm.cuh"

namespace strata::cuda {

inline constexpr int kQueriesOfBlock = 4;  // heads of a row that share a key head, of a block
inline constexpr int kEntries = kWarp;     // rows or cells that are attended to together

// Each row sees parts: the rows of the block, kEntries at a time, then what each block of threads
// has taken of the cells.
struct Attend {
    op::DflashShape shape;
    op::DflashCells cells;
    std::int64_t first;  // position of row 0, or where first_at is given the largest
    const std::int64_t* first_at;
    std::int64_t window;  // 0: all
    op::Gain query_norm;
    op::Gain key_norm;
    const double* inverse_frequency;
    float epsilon;
    DflashRows rows;  // as projected
    int count;        // B
    int group;        // query heads of a key head
    int spread;       // blocks that go through the cells in turn, piece by piece
    float* largest;   // [G, parts, queries], a query (row, head of the group)
    float* sum;       // [G, parts, queries]
    float* values;    // [G, parts, queries, d]

    // Brings `first` to what it is now. Each kernel begins with it; that and whose cells there are
    // was settled before.
    __device__ void look_up() { first = first_at == nullptr ? first : load_settled(first_at); }
    __host__ __device__ int own_parts() const { return (count + kEntries - 1) / kEntries; }
    __host__ __device__ int parts() const { return own_parts() + spread; }
    __host__ __device__ int queries() const { return count * group; }
    __host__ __device__ int sets() const { return (group + kQueriesOfBlock - 1) / kQueriesOfBlock; }
    __device__ std::int64_t at(int g, int part, int query) const {
        return (std::int64_t{g} * parts() + part) * queries() + query;
    }
    // The position of the first cell that a row may see: of what the ring can hold, what row 0,
    // which sees the furthest back, can see.
    __device__ std::int64_t lowest() const {
        const std::int64_t held = max(std::int64_t{0}, first - cells.slots);
        return window > 0 ? max(held, first - window + 1) : held;
    }
    __device__ int pieces_used() const {
        return static_cast<int>((first - lowest() + kEntries - 1) / kEntries);
    }
    __device__ int parts_used() const { return own_parts() + min(pieces_used(), spread); }
    // Whether row i sees the cell of `position`; -1 is none's.
    __device__ bool sees(int i, int position) const {
        return position >= 0 && (window == 0 || first + i - position < window);
    }
    __device__ bool sees_row(int i, int j) const {
        return window == 0 || (i > j ? i - j : j - i) < window;
    }
    // The position that entry e of a piece should have, and a slot that can be read for it.
    __device__ std::int64_t position_of(int piece, int e) const {
        return lowest() + std::int64_t{piece} * kEntries + e;
    }
    __device__ int slot_of(int piece, int e) const {
        return static_cast<int>(static_cast<unsigned>(min(position_of(piece, e), first - 1)) %
                                static_cast<unsigned>(cells.slots));
    }
    // The slot of entry e of a piece, and the position of its cell: -1 where it holds another.
    __device__ void find(int piece, int e, int* slot, int* position) const {
        const std::int64_t p = position_of(piece, e);
        *slot = slot_of(piece, e);
        *position =
            p < first && load_settled(cells.position + *slot) == p ? static_cast<int>(p) : -1;
    }
    __device__ Turns turns(int i) const {
        return {inverse_frequency, shape.rotary_pairs, first + i};
    }
};

// Softmax over some of what a query sees: its largest score, and relative to that the sums of
// weights and of weighted values, of kCount dimensions.
template <int kCount>
struct Softmax {
    float largest = -INFINITY;
    float sum = 0.0f;
    float values[kCount] = {};

    // Joins another's; a largest score of -infinity is one's that saw nothing.
    __device__ void add(float other, float other_sum, const float (&other_values)[kCount]) {
        if (other == -INFINITY) return;
        const float most = other > largest || other != other ? other : largest;
        const float own = expf(largest - most);
        const float theirs = expf(other - most);
        sum = __fmaf_rn(other_sum, theirs, sum * own);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            values[i] = __fmaf_rn(other_values[i], theirs, values[i] * own);
        }
        largest = most;
    }
};

// `to` = of each row the parts together, head after head.
void dflash_join(Queue& queue, const Attend& attend, const DraftRows& to);

}  // namespace strata::cuda
