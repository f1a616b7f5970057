// Which rows of a window go to which experts, found out on the device.
#pragma once

#include <cstdint>

#include "backend/cuda/operand.cuh"
#include "backend/cuda/queue.h"

namespace strata::cuda {

// Rows that are routed together at most.
inline constexpr int kRouteRowsMax = 16;

// Of T rows with k experts each. Members are the (row, slot) pairs, those of one expert next to
// each other, by row. All in device memory.
struct Routing {
    int* used = nullptr;        // experts with members
    int* expert = nullptr;      // [used]
    int* first = nullptr;       // [used + 1]: where each one's members begin
    int* x_row = nullptr;       // [T*k]: the row of each member
    int* own_expert = nullptr;  // [T*k]: the expert of each member
    int* place = nullptr;       // [T*k]: the member that slot s of row t became, at t*k + s
};

// Input rows that the launch rounds as well.
inline constexpr int kRoundsMax = 2;
struct Round {
    int group = kPlain;  // as operand.cuh has it
    std::byte* to = nullptr;
};

struct RouteArgs {
    MatrixView<const float> logits;  // [T, E], T <= route_rows(E)
    int active = 0;                  // k
    bool renormalize = true;
    std::int32_t* chosen = nullptr;  // [T, k]
    float* share = nullptr;          // [T, k]
    InputRows x{};                   // of T rows; without columns: nothing is rounded
    Round round[kRoundsMax] = {};
};

// Rows that one call takes.
int route_rows(std::int64_t experts);

// The k largest logits of each row, largest first, equal ones by the lower expert, NaN after all
// numbers; and their share: the softmax over all experts, divided by its sum over the k where
// `renormalize`.
Routing route(Queue& queue, const RouteArgs& args);

}  // namespace strata::cuda
