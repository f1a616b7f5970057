// Every backend in the build, in each configuration whose results must agree.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace strata::test {

struct TestBackend {
    std::string name;  // "cpu, 3 threads"
    std::string kind;  // backends of one kind agree bit for bit
    Backend backend;
};

// Made on first use, kept until the process ends. The first of a kind is its reference.
std::vector<TestBackend>& backends();

// The CUDA backend among them; null where there is none.
TestBackend* cuda_backend();

}  // namespace strata::test
