// Calls of op/stream_read.h and op/streams.h in watched memory.
#pragma once

#include <string>
#include <vector>

#include "tests/op/oracle/streams.h"
#include "tests/support/rig.h"

namespace strata::test {

struct StreamReadInput {
    std::vector<float> residual{};
    std::vector<float> block_out{};     // may be empty
    std::vector<float> block_inject{};  // may be empty
    bool inject_in_place = false;       // block_inject and inject are the same memory
};

struct StreamReadOutput {
    std::vector<float> residual{};
    std::vector<float> x;
    std::vector<float> inject;
};
void expect_same_output(const std::string& what, const StreamReadOutput& got,
                        const StreamReadOutput& want);

StreamReadOutput run_stream_read(TestBackend& backend, const std::string& label,
                                 const StreamReadLayer& layer, const StreamReadInput& input);

// `in_place`: out is the residual's memory.
std::vector<float> run_mtp_fuse(TestBackend& backend, const std::string& label,
                                const MtpFuseLayer& layer, const std::vector<std::int32_t>& tokens,
                                const std::vector<float>& residual, bool in_place);

}  // namespace strata::test
