// Products of weights with the rows of prompts: what op/weight.h calls the prompt route of W x, for
// hundreds to thousands of rows on tensor cores.
#pragma once

#include <cstdint>

#include "backend/cuda/queue.h"
#include "op/weight.h"

namespace strata::cuda {

// The columns that a step of a product takes at once.
inline constexpr std::int64_t kStepColumns = 64;

constexpr std::int64_t whole_steps(std::int64_t cols) {
    return (cols + kStepColumns - 1) / kStepColumns * kStepColumns;
}

// Rows of BF16 of whole steps, zeros where the matrix that they stand for ends earlier.
struct RoundedRows {
    std::uint16_t* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t stride = 0;

    constexpr std::uint16_t* row(std::int64_t r) const { return data + r * stride; }
};

// Whether products of `rows` rows are those of warpgroups (warpgroup.cuh), which round in another
// order than those of warps: all of a device are of one kind.
bool runs_warpgroups(Queue& queue, std::int64_t rows);

RoundedRows take_rounded(Queue& queue, std::int64_t rows, std::int64_t cols);

// The input of several products, in the forms that they ask for.
class PromptInput {
  public:
    PromptInput(Queue& queue, MatrixView<const float> x) : queue_(queue), x_(x), cols_(x.cols) {}
    // Rows that are rounded already: for products that round.
    PromptInput(Queue& queue, const RoundedRows& rounded, std::int64_t cols)
        : queue_(queue), cols_(cols), rounded_(rounded) {}

    Queue& queue() const { return queue_; }
    std::int64_t cols() const { return cols_; }
    const RoundedRows& rounded();
    // Each value as the sum of two of BF16, in three parts of whole steps: the larger ones, the
    // smaller ones, the larger ones again.
    const RoundedRows& split();

  private:
    Queue& queue_;
    MatrixView<const float> x_;
    std::int64_t cols_;
    RoundedRows rounded_;
    RoundedRows split_;
};

// The matrix in BF16: where it lies, if it lies so that products can read it, else unpacked.
RoundedRows rounded_matrix(Queue& queue, const op::Weight& weight);

// The matrix of F32 for products with rows in split form.
RoundedRows split_matrix(Queue& queue, MatrixView<const float> matrix);

// out[t] = weight . x[t]. Row t has the same bits among any rows. `exact`: as products that round
// neither (op/weight.h), through the split form of both.
void multiply(PromptInput& x, const op::Weight& weight, MatrixView<float> out, bool exact = false);

// out[t] = [first . x[t] | second . x[t]], exact, without the factors of the two.
void multiply_joined(PromptInput& x, const op::Weight& first, const op::Weight& second,
                     MatrixView<float> out);

// hidden[t] = silu(gate . x[t]) * (up . x[t]), rounded.
void multiply_gated(PromptInput& x, const op::Weight& gate, const op::Weight& up,
                    const RoundedRows& hidden);

}  // namespace strata::cuda
