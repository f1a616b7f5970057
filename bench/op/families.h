// One function a family of ops: registers its benchmarks for each number of rows.
#pragma once

#include "bench/support/bench.h"

namespace strata::bench {

void register_streams(const Options& options);
void register_ngram(const Options& options);
void register_delta_net(const Options& options);
void register_sparse_attention(const Options& options);
void register_experts(const Options& options);

// body(state, rows) as "name/rows" for a decode step, a verify window and a piece of a prompt.
template <typename Body>
void register_rows(const Options& options, const char* name, Body body) {
    for (const std::int64_t rows : {1, 4, 64}) {
        if (options.smoke && rows > 4) continue;
        benchmark::RegisterBenchmark((std::string(name) + "/" + std::to_string(rows)).c_str(),
                                     [body, rows](benchmark::State& state) { body(state, rows); })
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
    }
}

}  // namespace strata::bench
