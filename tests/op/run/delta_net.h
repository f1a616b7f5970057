// Calls of op/delta_net.h in watched memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/op/oracle/delta_net.h"
#include "tests/support/rig.h"

namespace strata::test {

struct DeltaOptions {
    op::DeltaForm form = op::DeltaForm::recurrent;
    bool in_place = false;  // `to` is `from`
    bool trace = false;
    // Values by which the memory lies off a place where four can be read at once; in place alone.
    int memory_off = 0;
};

struct DeltaTraceValues {
    std::vector<float> projected;
    std::vector<float> convolved;
    std::vector<float> beta;
    std::vector<float> decay;
};

struct DeltaNetOutput {
    std::vector<float> y;
    DeltaNetState state;
    DeltaTraceValues trace;
};
void expect_same_output(const std::string& what, const DeltaNetState& got,
                        const DeltaNetState& want);
void expect_same_output(const std::string& what, const DeltaNetOutput& got,
                        const DeltaNetOutput& want);

// Of an oracle's result; `trace`: of its trace too.
void expect_result(const std::string& label, const DeltaNetOutput& got, const DeltaNetResult& want,
                   const Tolerance& y_tolerance, bool trace);

DeltaNetOutput run_delta_net(TestBackend& backend, const std::string& label,
                             const DeltaNetLayer& layer, const DeltaNetState& from,
                             const std::vector<float>& x, DeltaOptions options = {});

// One layer of a replay.
struct ReplayedValues {
    DeltaNetState from;
    DeltaTraceValues trace;
    DeltaNetState before;  // what `to` holds, where it is not `from`
    int memory_off = 0;    // of both memories, as above
};

struct ReplayOptions {
    bool in_place = false;               // `to` is `from`
    std::optional<std::int64_t> told{};  // stands in memory
};

// The states after `rows` rows of traces, of several layers with the shape of `layer`.
std::vector<DeltaNetState> run_delta_replay(TestBackend& backend, const std::string& label,
                                            const DeltaNetLayer& layer,
                                            const std::vector<ReplayedValues>& layers,
                                            std::int64_t rows, const ReplayOptions& options = {});

}  // namespace strata::test
