// From what a person asks for to a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backend/backend.h"
#include "op/cache_row.h"
#include "strata/engine.h"

namespace strata {

constexpr op::CacheType cache_type(CacheKind kind) {
    if (kind == CacheKind::f32) return op::CacheType::f32;
    return kind == CacheKind::q8_0 ? op::CacheType::q8_0 : op::CacheType::f16;
}

struct ChosenBackend {
    Backend backend;
    bool gpu = false;
    std::string note;  // why not a GPU, where one was looked for; else empty
};

// Whether a model fits in so many bytes of a device that has memory of its own.
using Fits = std::function<Status(std::uint64_t available)>;

// Kind::best: the CUDA device of that number if this build and this machine have it and the model
// fits there, else the CPU. Errors: a device asked for that is not there or where `fits` fails; a
// wrong thread count.
Result<ChosenBackend> choose_backend(const DeviceChoice& choice, int threads, const Fits& fits);

}  // namespace strata
