// src/bench/op's cases under Google Benchmark, whose filters and reports they get:
//
//   bench_op                                  the widths of Flash-Next, all cores
//   bench_op --threads=1                      one thread
//   bench_op --benchmark_filter=delta_net     one family
//   bench_op --smoke                          tiny sizes, as in the tests
//
// Each label says what the call must move, the time that this takes at the machine's bandwidth, and
// a checksum. Measures calls again and again on the same memory; says nothing of a whole step.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/thread_pool.h"
#include "bench/op/cases.h"
#include "strata/bench.h"

namespace strata::bench {
namespace {

// Takes our own flags out of argv; false where one is not understood.
bool take_options(int& argc, char** argv, OpOptions& options) {
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--smoke") == 0) {
            options.smoke = true;
        } else if (std::strncmp(argv[i], "--threads=", 10) == 0) {
            options.threads = std::atoi(argv[i] + 10);
            if (options.threads < 1 || options.threads > kThreadsMax) return false;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argc = kept;
    return true;
}

void run(benchmark::State& state, const OpFamily& family, const OpOptions& options,
         std::int64_t rows, double bandwidth) {
    const OpCase one = family.make(options, rows);
    one.run();
    one.bed->queue().wait();
    char label[160];
    std::snprintf(label, sizeof label, "%.2f MB, floor %.1f us, checksum %016llx",
                  one.bytes() / 1e6, 1e6 * one.bytes() / bandwidth,
                  static_cast<unsigned long long>(checksum_of(one)));
    state.SetLabel(label);
    for ([[maybe_unused]] auto _ : state) {
        one.run();
        one.bed->queue().wait();
    }
}

void register_all(const OpOptions& options, double bandwidth) {
    for (const OpFamily& family : op_families()) {
        for (const std::int64_t rows : kOpRows) {
            if (options.smoke && rows > 4) continue;
            const auto body = [=](benchmark::State& state) {
                run(state, family, options, rows, bandwidth);
            };
            benchmark::RegisterBenchmark((family.name + "/" + std::to_string(rows)).c_str(), body)
                ->Unit(benchmark::kMicrosecond)
                ->UseRealTime();
        }
    }
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
    strata::bench::OpOptions options;
    if (!strata::bench::take_options(argc, argv, options)) {
        std::fprintf(stderr, "bench_op: --threads must be 1 to %d\n", strata::kThreadsMax);
        return 2;
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    const auto machine = strata::measure_machine(options.threads, options.smoke);
    if (!machine.ok()) {
        std::fprintf(stderr, "bench_op: %s\n", machine.error().message.c_str());
        return 1;
    }
    strata::bench::register_all(options, machine->read_bytes);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
