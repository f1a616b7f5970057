// op/experts.h for prompts: rows in the order of their experts, so that each expert's matrices are
// read once for all rows that chose it. Bound by the tensor cores where an expert has a hundred
// rows and more, below by unpacking its weights.
#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/multiply_experts.h"
#include "backend/cuda/prompt.h"
#include "base/check.h"

namespace strata::cuda::prompt {
namespace {

// y from what the experts of its row made, the largest share first, the shared one last.
struct Weigh {
    Routing routing;
    MatrixView<const float> made;    // [T * k, D]
    MatrixView<const float> shared;  // [T, D]
    MatrixView<float> y;

    __device__ void operator()(std::int64_t i) const {
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
    const RoundedRows hidden = take_rounded(own, members, table.hidden);
    multiply_members_gated(
        own, x.rounded(), {table.gate_at, table.gate_type, table.hidden, width, table.gate_factors},
        {table.up_at, table.up_type, table.hidden, width, table.up_factors}, routing, hidden);
    const MatrixView<float> made = own.matrix(members, width);
    multiply_members(own, hidden,
                     {table.down_at, table.down_type, width, table.hidden, table.down_factors},
                     routing, true, made);

    const RoundedRows shared_hidden = take_rounded(own, rows, args.shared_gate.rows);
    multiply_gated(x, args.shared_gate, args.shared_up, shared_hidden);
    PromptInput shared(own, shared_hidden, args.shared_gate.rows);
    const MatrixView<float> shared_made = own.matrix(rows, width);
    multiply(shared, args.shared_down, shared_made);
    for_each(own, args.y.size(), Weigh{routing, made, shared_made, args.y});
}

}  // namespace strata::cuda::prompt
