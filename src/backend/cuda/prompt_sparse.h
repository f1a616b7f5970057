// The parts of sparse attention for prompts; what they share with windows is in sparse.h.
#pragma once

#include "backend/cuda/multiply.h"
#include "backend/cuda/sparse.h"

namespace strata::cuda::prompt {

// Scores the blocks that rows first .. first+count-1 see to rows.scores, on tensor cores in split
// form, for the rows of which the last sees more than B. False: no such kernel for the shape.
bool scores_blocks(const op::AttentionShape& shape);
void score_blocks(PromptInput& block_keys, const SparseRows& rows, std::int64_t first,
                  std::int64_t count);

// out = concat over h of o_h * sigmoid(gate_h), rounded, of all rows, whose keys, values and
// weights of the softmax are multiplied as F16.
bool attends(const op::AttentionShape& shape);
void attend(Queue& queue, const SparseRows& rows, const RoundedRows& out);
// Of the rows that are early in the sequence, which come first: returns how many they are.
std::int64_t attend_early(Queue& queue, const SparseRows& rows, const RoundedRows& out);

}  // namespace strata::cuda::prompt
