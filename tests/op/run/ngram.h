// Calls of op/ngram.h in watched memory.
#pragma once

#include <string>
#include <vector>

#include "tests/op/oracle/ngram.h"
#include "tests/support/rig.h"

namespace strata::test {

struct NgramMixInput {
    std::vector<float> e;
    std::vector<float> residual;
    std::vector<float> history;
    std::vector<float> block_out;     // may be empty
    std::vector<float> block_inject;  // may be empty
    bool in_place = false;            // history_to is history_from
    bool trace = true;
};

struct NgramMixOutput {
    std::vector<float> residual;
    std::vector<float> history;
    std::vector<float> trace;
};
void expect_same_output(const std::string& what, const NgramMixOutput& got,
                        const NgramMixOutput& want);

NgramMixOutput run_ngram_mix(TestBackend& backend, const std::string& label,
                             const NgramMixLayer& layer, const NgramMixInput& input);

}  // namespace strata::test
