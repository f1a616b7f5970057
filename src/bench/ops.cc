// Single ops, timed.
#include "base/text.h"
#include "bench/clock.h"
#include "bench/mixed.h"
#include "bench/op/cases.h"

namespace strata {
namespace bench {

std::vector<OpFamily> op_families() {
    std::vector<OpFamily> all;
    for (const auto& some : {stream_families(), ngram_families(), delta_families(),
                             attention_families(), expert_families()}) {
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

std::uint64_t checksum_of(const OpCase& one) {
    return add_to_checksum(kChecksumStart, one.bed->download(one.out.data, one.out.size()));
}

namespace {

// Calls of one repeat: enough for the clock.
constexpr double kRepeatSeconds = 0.02;

OpFigure time_case(const OpFamily& family, const OpCase& one, std::int64_t rows,
                   std::int64_t repeats) {
    OpFigure figure;
    figure.name = family.name;
    figure.rows = rows;
    const auto run = [&](std::int64_t calls) {
        const Clock clock;
        for (std::int64_t i = 0; i < calls; ++i) {
            one.run();
            one.bed->queue().wait();
        }
        return clock.seconds();
    };
    run(1);
    figure.checksum = checksum_of(one);
    figure.bytes = one.bytes();
    const double seconds = run(1);
    const auto calls = static_cast<std::int64_t>(kRepeatSeconds / seconds) + 1;
    std::vector<double> ms;
    for (std::int64_t i = 0; i < repeats; ++i) {
        ms.push_back(1e3 * run(calls) / static_cast<double>(calls));
    }
    figure.ms = spread(ms);
    return figure;
}

}  // namespace
}  // namespace bench

Result<OpBench> bench_ops(const OpBenchRequest& request, const BenchProgress& progress) {
    if (request.repeats < 1) {
        return STRATA_ERROR(request.repeats, " repeats were asked for, wanted at least 1");
    }
    OpBench out;
    STRATA_ASSIGN(out.machine, measure_machine(request.threads, request.small));
    const auto families = bench::op_families();
    std::int64_t done = 0;
    for (const bench::OpFamily& family : families) {
        const bool wanted = family.name.find(request.filter) != std::string::npos;
        for (const std::int64_t rows : bench::kOpRows) {
            if (progress && !progress(done++, std::ssize(families) * std::ssize(bench::kOpRows))) {
                return bench::ended();
            }
            if (!wanted || (request.small && rows > 4)) continue;
            const bench::OpCase one = family.make({request.small, request.threads}, rows);
            OpFigure figure = bench::time_case(family, one, rows, request.repeats);
            figure.floor_ms = 1e3 * figure.bytes / out.machine.read_bytes;
            out.ops.push_back(figure);
        }
    }
    if (!out.ops.empty()) return out;
    return STRATA_ERROR("no op has ", quote(request.filter), " in its name");
}

}  // namespace strata
