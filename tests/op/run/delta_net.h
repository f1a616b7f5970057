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

struct ReplayOptions {
    bool in_place = false;               // `to` is `from`
    std::optional<std::int64_t> told{};  // stands in memory
    // Layers of one call, all alike.
    int layers = 1;
};

// The state after `rows` rows of a trace: of every layer, the last one's is returned. What `to`
// held before, where it is not `from`, is `before`.
DeltaNetState run_delta_replay(TestBackend& backend, const std::string& label,
                               const DeltaNetLayer& layer, const DeltaNetState& from,
                               const DeltaTraceValues& trace, std::int64_t rows,
                               const DeltaNetState& before, const ReplayOptions& options = {});

}  // namespace strata::test
