// Bounded by the exponentials. Rows are cut into pieces, whose sums are added in one order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "base/check.h"
#include "base/scan.h"

namespace strata::cpu {
namespace {

constexpr std::int64_t kPieceLogits = 4096;
// Of an exponential, beside a multiply-add.
constexpr std::int64_t kExponentialCost = 16;

// Of some logits: where the largest stands, and the sum of exp(logit - largest).
struct Piece {
    float largest = -std::numeric_limits<float>::infinity();
    std::int64_t at = 0;
    double sum = 0;
};

Piece piece_of(const float* logits, std::int64_t begin, std::int64_t end) {
    Piece piece{.at = begin};
    for (std::int64_t i = begin; i < end; ++i) {
        if (logits[i] > piece.largest) piece = {logits[i], i, 0};
    }
    if (piece.largest == -std::numeric_limits<float>::infinity()) {
        // Nothing of nothing where all are as low as can be.
        for (std::int64_t i = begin; i < end; ++i) {
            if (std::isnan(logits[i])) piece.sum = static_cast<double>(logits[i]);
        }
        return piece;
    }
    const std::span all(logits + begin, static_cast<std::size_t>(end - begin));
    piece.sum = sum_of_exponentials(all, piece.largest);
    return piece;
}

// The best of row t. Most logits are below the last of the list and go no further.
void fill_best(const op::Pick& args, std::int64_t t) {
    const std::int64_t k = args.best.cols;
    op::Candidate* best = args.best.row(t);
    std::fill_n(best, k, op::Candidate{});
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < args.logits.cols; ++r) {
        const float logit = args.logits.row(t)[r];
        if (!std::isfinite(logit)) continue;
        if (count == k && !(logit > best[k - 1].logit)) continue;
        std::int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && logit > best[at - 1].logit; --at) best[at] = best[at - 1];
        const std::int64_t token = args.token_of_row.empty() ? r : args.token_of_row[r];
        best[at] = {logit, static_cast<std::int32_t>(token)};
    }
}

}  // namespace

void pick(const op::Pick& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t rows = args.logits.rows;
    const std::int64_t width = args.logits.cols;
    STRATA_CHECK(width >= 1 && args.picked.size == rows);
    STRATA_CHECK(args.token_of_row.empty() || args.token_of_row.size == width);
    STRATA_CHECK(args.tokens.empty() || args.tokens.size == rows);
    const std::int64_t pieces = (width + kPieceLogits - 1) / kPieceLogits;
    Piece* all = own.take<Piece>(rows * pieces);
    const std::int64_t cost = kPieceLogits * kExponentialCost;
    own.split(rows * pieces, cost, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t first = i % pieces * kPieceLogits;
            all[i] =
                piece_of(args.logits.row(i / pieces), first, std::min(width, first + kPieceLogits));
        }
    });
    for (std::int64_t t = 0; t < rows; ++t) {
        const Piece* of_row = all + t * pieces;
        Piece best = of_row[0];
        for (std::int64_t p = 1; p < pieces; ++p) {
            if (of_row[p].largest > best.largest) best = of_row[p];
        }
        double sum = 0;
        for (std::int64_t p = 0; p < pieces; ++p) {
            const double below = of_row[p].largest == best.largest
                                     ? 0.0
                                     : static_cast<double>(of_row[p].largest) - best.largest;
            sum += of_row[p].sum * std::exp(below);
        }
        const auto token = static_cast<std::int32_t>(
            args.token_of_row.empty() ? best.at : args.token_of_row[best.at]);
        // Of no logit above the lowest there is no sum either.
        const double confidence = sum == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / sum;
        args.picked[t] = {token, static_cast<float>(confidence)};
        if (!args.tokens.empty()) args.tokens[t] = token;
    }
    if (args.best.empty()) return;
    STRATA_CHECK(args.best.rows == rows && args.best.cols <= op::kCandidatesMax);
    own.split(rows, width, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) fill_best(args, t);
    });
}

}  // namespace strata::cpu
