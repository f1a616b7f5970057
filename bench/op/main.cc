// How far each op is from the time that its bytes alone would take.
//
//   bench_op                                  the widths of Flash-Next, all cores
//   bench_op --threads=1                      one thread
//   bench_op --benchmark_filter=delta_net     one family
//   bench_op --smoke                          tiny sizes, as in the tests
//
// Measures calls again and again on the same memory; says nothing of a whole step.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/thread_pool.h"
#include "bench/op/families.h"

namespace {

// Takes our own flags out of argv; false where one is not understood.
bool take_options(int& argc, char** argv, strata::bench::Options& options) {
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--smoke") == 0) {
            options.smoke = true;
        } else if (std::strncmp(argv[i], "--threads=", 10) == 0) {
            options.threads = std::atoi(argv[i] + 10);
            if (options.threads < 1 || options.threads > strata::kThreadsMax) return false;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argc = kept;
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    strata::bench::Options options;
    if (!take_options(argc, argv, options)) {
        std::fprintf(stderr, "bench_op: --threads must be 1 to %d\n", strata::kThreadsMax);
        return 2;
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    strata::bench::register_streams(options);
    strata::bench::register_ngram(options);
    strata::bench::register_delta_net(options);
    strata::bench::register_sparse_attention(options);
    strata::bench::register_experts(options);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
