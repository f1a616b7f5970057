// Bounded by latency: one block, a warp a row.
#include "backend/cuda/route.h"

#include <algorithm>

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = kRouteRowsMax * kWarp;

// In the order in which experts are chosen: NaN before all numbers, both zeros the same. 0 is left
// for those that are taken.
__device__ unsigned key_of(float logit) {
    if (logit != logit) return 1;
    const unsigned bits = __float_as_uint(logit + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ unsigned warp_max_bits(unsigned value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(kAllLanes, value);
#else
    for (int by = kWarp / 2; by > 0; by /= 2) {
        value = max(value, __shfl_xor_sync(kAllLanes, value, by));
    }
    return value;
#endif
}

// The largest key of the experts lane, lane + 32, ..., the first of equal ones.
struct Best {
    unsigned key = 0;
    int expert = 0;

    __device__ void find(const unsigned* keys, int experts) {
        key = 0;
        for (int e = static_cast<int>(threadIdx.x) % kWarp; e < experts; e += kWarp) {
            if (keys[e] > key) {
                key = keys[e];
                expert = e;
            }
        }
    }
};

// One warp: picks[0 .. k-1] for one row.
__device__ void choose(const float* logits, int experts, int active, unsigned* keys, int* picks) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int e = lane; e < experts; e += kWarp) keys[e] = key_of(logits[e]);
    Best best;
    best.find(keys, experts);
    for (int i = 0; i < active; ++i) {
        const unsigned largest = warp_max_bits(best.key);
        const unsigned own = best.key == largest ? ~static_cast<unsigned>(best.expert) : 0u;
        const auto pick = static_cast<int>(~warp_max_bits(own));
        if (lane == 0) picks[i] = pick;
        if (pick % kWarp == lane) {
            keys[pick] = 0;
            best.find(keys, experts);
        }
    }
    __syncwarp();
}

__device__ void set_shares(const float* logits, int experts, int active, bool renormalize,
                           const int* picks, float* share) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const float largest = logits[picks[0]];
    float sum = 0.0f;
    if (renormalize) {
        for (int i = lane; i < active; i += kWarp) sum += expf(logits[picks[i]] - largest);
    } else {
        for (int e = lane; e < experts; e += kWarp) sum += expf(logits[e] - largest);
    }
    sum = warp_sum(sum);
    for (int i = lane; i < active; i += kWarp) share[i] = expf(logits[picks[i]] - largest) / sum;
}

// Members in the order of each expert's first slot. `leader` gets that slot, of every slot.
__device__ void group(const int* picks, int slots, int active, int* leader, const Routing& to) {
    for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) {
        int first = 0;
        while (picks[first] != picks[i]) ++first;
        leader[i] = first;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) {
        const int own = leader[i];
        int place = 0;
        int number = 0;  // of experts that come before
        for (int j = 0; j < slots; ++j) {
            place += leader[j] < own || (leader[j] == own && j < i) ? 1 : 0;
            number += leader[j] == j && j < own ? 1 : 0;
        }
        to.x_row[place] = i / active;
        to.own_expert[place] = picks[i];
        to.place[i] = place;
        if (own == i) {
            to.expert[number] = picks[i];
            to.first[number] = place;
        }
        if (place == slots - 1) {
            *to.used = number + 1;
            to.first[number + 1] = slots;
        }
    }
}

// The first block routes, the others round.
__global__ void __launch_bounds__(kThreads)
    route_kernel(const __grid_constant__ RouteArgs args, const __grid_constant__ Routing to) {
    follow_earlier_kernels();
    if (blockIdx.x != 0) {
        const Round& round = args.round[(blockIdx.x - 1) % kRoundsMax];
        const auto block = static_cast<int>(blockIdx.x - 1) / kRoundsMax;
        make_operand(args.x, static_cast<int>(args.logits.rows), round.group,
                     block * kRouteRowsMax + static_cast<int>(threadIdx.x) / kWarp,
                     static_cast<int>(gridDim.x) / kRoundsMax * kRouteRowsMax, round.to);
        return;
    }
    const auto rows = static_cast<int>(args.logits.rows);
    const auto experts = static_cast<int>(args.logits.cols);
    auto* keys = reinterpret_cast<unsigned*>(shared_bytes());
    auto* picks = reinterpret_cast<int*>(keys + rows * experts);
    const int slots = rows * args.active;
    const int row = static_cast<int>(threadIdx.x) / kWarp;
    if (row < rows) {
        const float* logits = args.logits.row(row);
        int* own = picks + row * args.active;
        choose(logits, experts, args.active, keys + row * experts, own);
        set_shares(logits, experts, args.active, args.renormalize, own,
                   args.share + row * args.active);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) args.chosen[i] = picks[i];
    group(picks, slots, args.active, picks + slots, to);
}

}  // namespace

int route_rows(std::int64_t experts) {
    constexpr std::int64_t kKeysMax = 8192;
    return static_cast<int>(std::clamp<std::int64_t>(kKeysMax / experts, 1, kRouteRowsMax));
}

Routing route(Queue& queue, const RouteArgs& args) {
    const std::int64_t rows = args.logits.rows;
    const std::int64_t slots = rows * args.active;
    STRATA_CHECK(rows <= route_rows(args.logits.cols));
    const Routing to{.used = queue.take<int>(1),
                     .expert = queue.take<int>(slots),
                     .first = queue.take<int>(slots + 1),
                     .x_row = queue.take<int>(slots),
                     .own_expert = queue.take<int>(slots),
                     .place = queue.take<int>(slots)};
    const std::int64_t words = rows * args.logits.cols + 2 * slots;
    const std::int64_t rounds = rows * ((args.x.cols + kTogether - 1) / kTogether);
    const std::int64_t round_blocks = (rounds + kRouteRowsMax - 1) / kRouteRowsMax * kRoundsMax;
    launch(queue,
           {.blocks = dim3(static_cast<unsigned>(1 + round_blocks)),
            .threads = kThreads,
            .shared_bytes = static_cast<std::size_t>(words) * sizeof(int),
            .dependent = true},
           route_kernel, args, to);
    return to;
}

}  // namespace strata::cuda
