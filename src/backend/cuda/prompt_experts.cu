// op/experts.h for prompts: rows in the order of their experts, so that each expert's matrices are
// read once for all rows that chose it. Bound by the tensor cores where an expert has a hundred
// rows and more, below by unpacking its weights.
#include "backend/cuda/fours.cuh"
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/multiply_experts.h"
#include "backend/cuda/prompt.h"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

// y from what the experts of its row made, the largest share first, the shared one last.
struct Weigh {
    static constexpr int kAhead = 5;  // rows on their way at once
    Routing routing;
    MatrixView<const float> made;    // [T * k, D]
    MatrixView<const float> shared;  // [T, D]
    MatrixView<float> y;

    // Of columns 4 i .. 4 i + 3 of all rows, which do not cross from row to row.
    __device__ void operator()(std::int64_t i) const {
        const auto fours = static_cast<int>(y.cols / 4);
        const auto t = static_cast<int>(i / fours);
        const int c = static_cast<int>(i - std::int64_t{t} * fours) * 4;
        const auto active = static_cast<int>(routing.chosen.cols);
        float4 sum{};
        for (int first = 0; first < active; first += kAhead) {
            float share[kAhead] = {};
            float4 v[kAhead] = {};
#pragma unroll
            for (int j = 0; j < kAhead; ++j) {
                if (first + j >= active) break;
                const std::int32_t member = routing.member[t * active + first + j];
                share[j] = routing.share.row(t)[first + j];
                v[j] = __ldcs(reinterpret_cast<const float4*>(made.row(member) + c));
            }
#pragma unroll
            for (int j = 0; j < kAhead; ++j) {
                if (first + j >= active) break;
                add(share[j], v[j], sum);
            }
        }
        add(routing.shared_share[t], reinterpret_cast<const float4*>(shared.data)[i], sum);
        reinterpret_cast<float4*>(y.data)[i] = sum;
    }
    __device__ static void add(float share, const float4& v, float4& sum) {
        sum.x = __fmaf_rn(share, v.x, sum.x);
        sum.y = __fmaf_rn(share, v.y, sum.y);
        sum.z = __fmaf_rn(share, v.z, sum.z);
        sum.w = __fmaf_rn(share, v.w, sum.w);
    }
    // A column at a time, where rows have no whole fours.
    __device__ void single(std::int64_t i) const {
        const std::int64_t t = i / y.cols;
        const std::int64_t c = i % y.cols;
        const auto active = static_cast<int>(routing.chosen.cols);
        float sum = 0.0f;
        for (int j = 0; j < active; ++j) {
            const std::int32_t member = routing.member[t * active + j];
            sum = __fmaf_rn(routing.share.row(t)[j], made.row(member)[c], sum);
        }
        y.data[i] = __fmaf_rn(routing.shared_share[t], shared.data[i], sum);
    }
};
struct WeighSingle {
    Weigh all;
    __device__ void operator()(std::int64_t i) const { all.single(i); }
};

}  // namespace

void experts(const op::Experts& args, device::Queue& queue) {
    const op::ExpertTable& table = args.experts;
    const std::int64_t rows = args.x.rows;
    const std::int64_t width = args.x.cols;
    STRATA_CHECK(table.count == args.router.rows && args.active <= table.count);
    Queue& own = begin_op(queue);
    PromptInput x(own, args.x);
    const MatrixView<float> logits = own.matrix(rows, table.count + 1);
    multiply_joined(x, args.router, args.shared_scale, logits);
    const Routing routing = route(own, args, logits, kExpertTileRows);

    const std::int64_t members = rows * args.active;
    const MemberRows hidden = multiply_members_gated(
        own, x.rounded(), {table.gate_at, table.gate_type, table.hidden, width, table.gate_factors},
        {table.up_at, table.up_type, table.hidden, width, table.up_factors}, routing,
        table.down_type);
    const MatrixView<float> made = own.matrix(members, width);
    multiply_members(own, hidden,
                     {table.down_at, table.down_type, width, table.hidden, table.down_factors},
                     routing, true, made);

    const RoundedRows shared_hidden = take_rounded(own, rows, args.shared_gate.rows);
    multiply_gated(x, args.shared_gate, args.shared_up, shared_hidden);
    PromptInput shared(own, shared_hidden, args.shared_gate.rows);
    const MatrixView<float> shared_made = own.matrix(rows, width);
    multiply(shared, args.shared_down, shared_made);
    const Weigh weigh{routing, made, shared_made, args.y};
    if (width % 4 == 0 && in_fours(args.y.data)) {
        return for_each(own, args.y.size() / 4, weigh);
    }
    for_each(own, args.y.size(), WeighSingle{weigh});
}

}  // namespace strata::cuda::prompt
