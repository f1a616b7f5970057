// Calls of op/experts.h in watched memory.
#pragma once

#include <string>
#include <vector>

#include "tests/op/oracle/experts.h"
#include "tests/support/rig.h"

namespace strata::test {

struct ExpertsOutput {
    std::vector<float> y;
    std::vector<std::int32_t> chosen;
    std::vector<float> share;
};
void expect_same_output(const std::string& what, const ExpertsOutput& got,
                        const ExpertsOutput& want);

// The matrices of all experts lie in one region in an order of their own, poison between them, so
// that nothing but the tables of addresses says where. `report`: ask for chosen and share.
ExpertsOutput run_experts(TestBackend& backend, const std::string& label, const ExpertsLayer& layer,
                          const std::vector<float>& x, bool report = true);

}  // namespace strata::test
