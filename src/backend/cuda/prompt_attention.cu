// op/sparse_attention.h for prompts: products, scores and attention on tensor cores; what else is
// done to rows, and the choice of blocks, as for windows.
#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/prompt.h"
#include "backend/cuda/prompt_sparse.h"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

// Of rows that are scored at a time.
constexpr std::int64_t kScoresMax = std::int64_t{1} << 26;

void choose(Queue& queue, SparseRows& rows) {
    const op::SparseAttention& args = rows.args;
    const std::int64_t count = args.x.rows;
    const std::int64_t seen = (args.first + count) / args.shape.ratio;
    if (seen <= args.shape.blocks_kept) return;
    const std::int64_t stride = args.cache.context / args.shape.ratio;
    const std::int64_t most = std::clamp<std::int64_t>(kScoresMax / stride, kSparseRows, count);
    rows.scores = queue.take<float>(most * stride);
    PromptInput keys(queue, {args.cache.block_keys, seen, args.shape.index_dim});
    for (std::int64_t first = 0; first < count; first += most) {
        const std::int64_t some = std::min(most, count - first);
        if ((args.first + first + some) / args.shape.ratio <= args.shape.blocks_kept) continue;
        score_blocks(keys, rows, first, some);
        choose_blocks(queue, rows, first, some);
    }
}

}  // namespace

void sparse_attention(const op::SparseAttention& args, device::Queue& queue) {
    const op::AttentionShape& shape = args.shape;
    const std::int64_t count = args.x.rows;
    // Shapes of test models.
    if (!attends(shape) || !scores_blocks(shape)) return cuda::sparse_attention(args, queue);
    STRATA_CHECK(args.first_at == nullptr && args.first >= 0 &&
                 args.first + count <= args.cache.context);
    Queue& own = begin_op(queue);
    PromptInput x(own, args.x);
    SparseRows rows;
    rows.args = args;
    rows.key = own.matrix(count, args.key.rows);
    rows.value = own.matrix(count, args.value.rows);
    rows.raw = args.raw_trace.empty() ? own.matrix(count, args.index_key.rows) : args.raw_trace;
    multiply(x, args.key, rows.key);
    multiply(x, args.value, rows.value);
    multiply(x, args.index_key, rows.raw);
    if (args.y.empty()) return finish_rows(own, rows);
    rows.query = own.matrix(count, args.query.rows);
    rows.index_query = own.matrix(count, args.index_query.rows);
    rows.chosen = own.take<std::int32_t>(count * shape.blocks_kept);
    multiply(x, args.query, rows.query);
    multiply(x, args.index_query, rows.index_query);
    finish_rows(own, rows);
    choose(own, rows);
    const RoundedRows attended = take_rounded(own, count, args.out.cols);
    attend(own, rows, attended);
    PromptInput read(own, attended, args.out.cols);
    multiply(read, args.out, args.y);
}

}  // namespace strata::cuda::prompt
