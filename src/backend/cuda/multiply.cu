// Products for prompts. A matrix is unpacked to BF16 once a call, into memory that the product then
// reads in place of it: next to thousands of rows that costs little, and one kernel multiplies
// every type. What bounds the product: multiply.cuh.
#include "backend/cuda/multiply_rounded.cuh"

#include <optional>

#include "backend/cuda/columns.cuh"
#include "backend/cuda/either_route.h"
#include "backend/cuda/unpack_rows.cuh"

namespace strata::cuda {
namespace {

constexpr int kSplitParts = 3;

// The most rows of a matrix that are unpacked at a time: bounds the memory for a vocabulary.
constexpr std::int64_t kUnpackedRowsMax = 32768;

// Eight values to columns first .. of a row: in split form the larger parts go to the first and
// `again` part, the smaller to the other.
__device__ void store_eight(const float* v, std::uint16_t* row, std::int64_t first,
                            std::int64_t part, bool split, int again) {
    const auto to = [&](int p) -> uint4& {
        return *reinterpret_cast<uint4*>(row + p * part + first);
    };
    to(0) = bf16_eight(v);
    if (!split) return;
    to(again) = bf16_eight(v);
    to(kSplitParts - again) = bf16_rests(v);
}

// Of x: larger, smaller, larger.
struct RoundEight {
    MatrixView<const float> x;
    RoundedRows out;
    bool split;

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t part = split ? out.stride / kSplitParts : out.stride;
        const std::int64_t t = i / (part / 8);
        const std::int64_t first = i % (part / 8) * 8;
        float v[8];
        const float* from = x.row(t) + first;
        if (x.cols % 4 == 0 && first + 8 <= x.cols) {
            const float4 low = *reinterpret_cast<const float4*>(from);
            const float4 high = *reinterpret_cast<const float4*>(from + 4);
            v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
            v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
        } else {
            for (int j = 0; j < 8; ++j) v[j] = first + j < x.cols ? from[j] : 0.0f;
        }
        store_eight(v, out.row(t), first, part, split, 2);
    }
};

void round_rows(Queue& queue, MatrixView<const float> x, const RoundedRows& out, bool split) {
    const std::int64_t part = split ? out.stride / kSplitParts : out.stride;
    for_each(queue, x.rows * (part / 8), RoundEight{x, out, split});
}

// Of a weight, the parts larger, larger, smaller. Row r goes to row r, or with `turns` of a pair
// of matrices to where the eighth of the rows after another lie in turn.
template <typename Columns>
struct UnpackColumns {
    op::Weight weight;
    RoundedRows out;
    bool split;
    int turn;  // -1: rows in their order

    __device__ void operator()(std::int64_t i) const {
        const std::int64_t part = split ? out.stride / kSplitParts : out.stride;
        const std::int64_t units = part / kUnpackColumns;
        const std::int64_t r = i / units;
        const std::int64_t first = i % units * kUnpackColumns;
        typename Columns::Raw raw;
        Columns::load(weight.row(r), weight.cols, first, raw);
        float v[kUnpackColumns];
        Columns::values(raw, first, v);
        std::uint16_t* to = out.row(turned_row(r, turn));
#pragma unroll
        for (int j = 0; j < kUnpackColumns; j += 8) {
            store_eight(v + j, to, first + j, part, split, 1);
        }
    }
};

void unpack(Queue& queue, const op::Weight& weight, const RoundedRows& out, bool split, int turn) {
    if (!split && has_blocks(weight.type)) return unpack_blocks(queue, weight, out, turn);
    const std::int64_t part = split ? out.stride / kSplitParts : out.stride;
    with_columns(weight.type, [&](auto columns) {
        for_each(queue, weight.rows * (part / kUnpackColumns),
                 UnpackColumns<decltype(columns)>{weight, out, split, turn});
    });
}

// Whether the matrix lies as products read it.
bool lies_rounded(const op::Weight& weight) {
    return weight.type == quant::Type::bf16 && weight.cols % kStepColumns == 0 &&
           reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
}

RoundedRows as_rounded(const op::Weight& weight) {
    auto* data = reinterpret_cast<std::uint16_t*>(const_cast<std::byte*>(weight.data));
    return {data, weight.rows, weight.cols};
}

#ifdef __CUDACC__
// Has shared memory where the code is for chips with products of warpgroups: so the host can tell.
__global__ void tell_warpgroups(int* to) {
#if STRATA_WARPGROUPS
    __shared__ int kept[kWarp];
    kept[threadIdx.x] = *to;
    __syncthreads();
    *to = kept[kWarp - 1 - threadIdx.x];
#endif
}
#endif

op::Weight rows_of(op::Weight weight, std::int64_t first, std::int64_t rows) {
    weight.data = weight.row(first);
    weight.rows = rows;
    return weight;
}

}  // namespace

bool runs_warpgroups([[maybe_unused]] Queue& queue, [[maybe_unused]] std::int64_t rows) {
#ifdef __CUDACC__
    std::optional<bool>& known = queue.has_warpgroups();
    if (!known) {
        cudaFuncAttributes attributes{};
        queue.note(cudaFuncGetAttributes(&attributes, tell_warpgroups));
        known = attributes.sharedSizeBytes > 0;
    }
    return *known;
#else
    // The emulator runs both, which give the same bits there.
    return rows % 2 != 0;
#endif
}

RoundedRows take_rounded(Queue& queue, std::int64_t rows, std::int64_t cols) {
    const std::int64_t stride = whole_steps(cols);
    return {queue.take<std::uint16_t>(rows * stride), rows, stride};
}

RoundedRows rounded_matrix(Queue& queue, const op::Weight& weight) {
    if (lies_rounded(weight)) return as_rounded(weight);
    const RoundedRows unpacked = take_rounded(queue, weight.rows, weight.cols);
    unpack(queue, weight, unpacked, false, -1);
    return unpacked;
}

RoundedRows split_matrix(Queue& queue, MatrixView<const float> matrix) {
    const auto* data = reinterpret_cast<const std::byte*>(matrix.data);
    const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * matrix.cols;
    const RoundedRows split =
        take_rounded(queue, matrix.rows, kSplitParts * whole_steps(matrix.cols));
    unpack(queue, {data, quant::Type::f32, matrix.rows, matrix.cols, row_bytes}, split, true, -1);
    return split;
}

const RoundedRows& PromptInput::rounded() {
    if (rounded_.data == nullptr) {
        rounded_ = take_rounded(queue_, x_.rows, x_.cols);
        round_rows(queue_, x_, rounded_, false);
    }
    return rounded_;
}

const RoundedRows& PromptInput::split() {
    if (split_.data == nullptr) {
        STRATA_CHECK(!x_.empty());
        split_ = take_rounded(queue_, x_.rows, kSplitParts * whole_steps(x_.cols));
        round_rows(queue_, x_, split_, true);
    }
    return split_;
}

void multiply(PromptInput& x, const op::Weight& weight, MatrixView<float> out, bool exact) {
    STRATA_CHECK(weight.cols == x.cols() && out.cols == weight.rows);
    Queue& queue = x.queue();
    const RoundedRows& rows = exact ? x.split() : x.rounded();
    if (lies_rounded(weight) && !exact) {
        multiply_rounded(queue, rows, RoundedMatrix{as_rounded(weight)}, weight.rows,
                         StoreRows{out, 0, weight.factor});
        return;
    }
    const std::int64_t part = whole_steps(weight.cols);
    const std::int64_t most = std::min(weight.rows, kUnpackedRowsMax);
    const RoundedRows unpacked = take_rounded(queue, most, exact ? kSplitParts * part : part);
    for (std::int64_t first = 0; first < weight.rows; first += most) {
        const std::int64_t n = std::min(most, weight.rows - first);
        unpack(queue, rows_of(weight, first, n), unpacked, exact, -1);
        multiply_rounded(queue, rows, RoundedMatrix{{unpacked.data, n, unpacked.stride}}, n,
                         StoreRows{out, first, weight.factor});
    }
}

void project_prompt(Queue& queue, MatrixView<const float> x, std::span<const Product> products) {
    PromptInput input(queue, x);
    for (const Product& product : products) multiply(input, product.weight, product.out);
}

void multiply_joined(PromptInput& x, const op::Weight& first, const op::Weight& second,
                     MatrixView<float> out) {
    STRATA_CHECK(first.cols == x.cols() && second.cols == x.cols());
    STRATA_CHECK(out.cols == first.rows + second.rows);
    Queue& queue = x.queue();
    const std::int64_t part = whole_steps(first.cols);
    const RoundedRows matrix = take_rounded(queue, out.cols, kSplitParts * part);
    unpack(queue, first, matrix, true, -1);
    unpack(queue, second, {matrix.row(first.rows), second.rows, matrix.stride}, true, -1);
    multiply_rounded(queue, x.split(), RoundedMatrix{matrix}, out.cols, StoreRows{out});
}

void multiply_gated(PromptInput& x, const op::Weight& gate, const op::Weight& up,
                    const RoundedRows& hidden) {
    STRATA_CHECK(gate.cols == x.cols() && up.cols == x.cols() && gate.rows == up.rows);
    Queue& queue = x.queue();
    const RoundedRows matrix = take_rounded(queue, 2 * whole_steps(gate.rows), gate.cols);
    unpack(queue, gate, matrix, false, 0);
    unpack(queue, up, matrix, false, 1);
    multiply_rounded(queue, x.rounded(), RoundedMatrix{matrix}, 2 * hidden.stride,
                     StoreGated{hidden, gate.rows, gate.factor, up.factor});
}

}  // namespace strata::cuda
