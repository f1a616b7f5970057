// A prompt into an empty sequence.
#include "base/text.h"
#include "bench/clock.h"
#include "bench/runner.h"

namespace strata {

Result<PromptBench> bench_prompt(const PromptBenchRequest& request, const BenchProgress& progress) {
    if (request.tokens < 1 || request.tokens > INT32_MAX) {
        return STRATA_ERROR("a prompt of ", request.tokens, " tokens was asked for, wanted 1 to ",
                            INT32_MAX);
    }
    STRATA_ASSIGN(bench::Runner runner, bench::Runner::load(request, 1, request.tokens, false));
    STRATA_ASSIGN(const MachineRates before, runner.rates());
    STRATA_ASSIGN(model::Sequence sequence,
                  runner.target().make_sequence(runner.sequence_options(request.tokens)));
    const std::vector<std::int32_t> tokens = runner.draw_tokens(request.tokens);
    bench::Measured measured;
    measured.rows = request.tokens;
    for (std::int64_t repeat = 0; repeat <= request.repeats; ++repeat) {
        const auto go_on = [&] { return !progress || progress(repeat, request.repeats + 1); };
        runner.target().reset(sequence);
        double ms = 0;
        STRATA_TRY(
            runner.read_prompt(sequence, tokens, go_on, &measured, repeat == 0 ? nullptr : &ms));
        if (repeat > 0) measured.ms.push_back(ms);
    }
    STRATA_ASSIGN(const MachineRates after, runner.rates());
    const MachineRates rates = bench::better(before, after);
    return PromptBench{rates, runner.table_reads(), measured.figure(rates)};
}

}  // namespace strata
