// Bounded by latency: one block, a warp a row.
#include "backend/cuda/route.h"

#include <algorithm>

#include "backend/cuda/intrinsics.cuh"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = kRouteRowsMax * kWarp;

constexpr int kHeld = 16;  // keys of a lane in registers

// In the order in which experts are chosen: NaN before all numbers, both zeros the same. 0 is left
// for those that are taken.
__device__ unsigned key_of(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    const unsigned turned = bits ^ ((0u - (bits >> 31)) | 0x80000000u);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 1u : turned;
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

__device__ float logit_of(unsigned key) {
    if (key == 1) return __uint_as_float(0x7fc00000u);
    return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// The largest key of the experts lane, lane + 32, ..., the first of equal ones.
struct Best {
    unsigned key = 0;
    int expert = 0;

    __device__ void find(const unsigned* keys, int experts) {
        key = 0;
#pragma unroll 1
        for (int e = static_cast<int>(threadIdx.x) % kWarp; e < experts; e += kWarp) {
            if (keys[e] > key) {
                key = keys[e];
                expert = e;
            }
        }
    }
};

// What a warp has chosen for one row.
struct Picks {
    int* expert;   // [k]
    float* logit;  // [k]

    // Of the warp's lanes' best ones, of which the lowest expert is taken; whether it was the
    // lane's.
    __device__ bool take(int i, unsigned key, int own) const {
        const unsigned largest = warp_max_bits(key);
        const unsigned candidate = key == largest ? ~static_cast<unsigned>(own) : 0u;
        const auto pick = static_cast<int>(~warp_max_bits(candidate));
        if (threadIdx.x % kWarp == 0) {
            expert[i] = pick;
            logit[i] = logit_of(largest);
        }
        return pick == own && key == largest;
    }
};

__device__ void choose(const float* logits, int experts, int active, unsigned* keys,
                       const Picks& to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
    for (int e = lane; e < experts; e += kWarp) keys[e] = key_of(logits[e]);
    Best best;
    best.find(keys, experts);
#pragma unroll 1
    for (int i = 0; i < active; ++i) {
        if (to.take(i, best.key, best.expert)) {
            keys[best.expert] = 0;
            best.find(keys, experts);
        }
    }
}

// The same of up to kHeld * 32 experts, in registers.
__device__ __forceinline__ void choose_held(const float* logits, int experts, int active,
                                            const Picks& to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float own[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int e = lane + i * kWarp;
        own[i] = e < experts ? logits[e] : 0.0f;
    }
    unsigned keys[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) keys[i] = lane + i * kWarp < experts ? key_of(own[i]) : 0;
#pragma unroll 1
    for (int pick = 0; pick < active; ++pick) {
        unsigned largest[kHeld];
        int slot[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            largest[i] = keys[i];
            slot[i] = i;
        }
#pragma unroll
        for (int by = 1; by < kHeld; by *= 2) {
#pragma unroll
            for (int i = 0; i < kHeld; i += 2 * by) {
                const bool later = largest[i + by] > largest[i];
                largest[i] = later ? largest[i + by] : largest[i];
                slot[i] = later ? slot[i + by] : slot[i];
            }
        }
        const bool taken = to.take(pick, largest[0], lane + slot[0] * kWarp);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) keys[i] = taken && slot[0] == i ? 0 : keys[i];
    }
}

__device__ void set_shares(const float* logits, int experts, int active, bool renormalize,
                           const Picks& picks, float* share) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const float largest = picks.logit[0];
    float sum = 0.0f;
    if (renormalize) {
#pragma unroll 1
        for (int i = lane; i < active; i += kWarp) sum += expf(picks.logit[i] - largest);
    } else {
#pragma unroll 1
        for (int e = lane; e < experts; e += kWarp) sum += expf(logits[e] - largest);
    }
    sum = warp_sum(sum);
#pragma unroll 1
    for (int i = lane; i < active; i += kWarp) share[i] = expf(picks.logit[i] - largest) / sum;
}

// Members in the order of each expert's first slot. `leader` gets that slot, of every slot.
__device__ void group(const int* picks, int slots, int active, int* leader, const Routing& to) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) {
        int first = i;
#pragma unroll 8
        for (int j = i - 1; j >= 0; --j) first = picks[j] == picks[i] ? j : first;
        leader[i] = first;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) {
        const int own = leader[i];
        int place = 0;
        int number = 0;  // of experts that come before
#pragma unroll 8
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

// The same for one row, whose experts all differ, by its warp.
__device__ void list_row(const int* picks, int active, std::int32_t* chosen, const Routing& to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
    for (int i = lane; i < active; i += kWarp) {
        chosen[i] = picks[i];
        to.expert[i] = picks[i];
        to.own_expert[i] = picks[i];
        to.first[i] = i;
        to.place[i] = i;
        to.x_row[i] = 0;
    }
    if (lane == 0) {
        *to.used = active;
        to.first[active] = active;
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
    const int slots = rows * args.active;
    auto* picks = reinterpret_cast<int*>(shared_bytes());
    auto* picked = reinterpret_cast<float*>(picks + slots);
    int* leader = picks + 2 * slots;
    auto* keys = reinterpret_cast<unsigned*>(leader + slots);
    const int row = static_cast<int>(threadIdx.x) / kWarp;
    if (row < rows) {
        const float* logits = args.logits.row(row);
        const Picks own{picks + row * args.active, picked + row * args.active};
        if (experts <= kHeld * kWarp) {
            choose_held(logits, experts, args.active, own);
        } else {
            choose(logits, experts, args.active, keys + row * experts, own);
        }
        __syncwarp();
        if (rows == 1) list_row(picks, args.active, args.chosen, to);
        set_shares(logits, experts, args.active, args.renormalize, own,
                   args.share + row * args.active);
    }
    if (rows == 1) return;
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) args.chosen[i] = picks[i];
    group(picks, slots, args.active, leader, to);
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
    const std::int64_t keys = args.logits.cols <= kHeld * kWarp ? 0 : rows * args.logits.cols;
    const std::int64_t words = keys + 3 * slots;
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
