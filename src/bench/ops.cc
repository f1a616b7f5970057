// Single ops, timed.
#include "backend/choose.h"
#include "base/text.h"
#include "bench/clock.h"
#include "bench/device_rates.h"
#include "bench/mixed.h"
#include "bench/op/cases.h"

namespace strata {
namespace bench {

std::vector<OpFamily> op_families() {
    std::vector<OpFamily> all;
    for (const auto& some :
         {stream_families(), ngram_families(), delta_families(), attention_families(),
          expert_families(), draw_families(), draft_families()}) {
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

// Cases of a GPU that take turns: together larger than its cache.
constexpr int kGpuCases = 4;

OpFigure time_cases(const OpFamily& family, const std::vector<OpCase>& cases, std::int64_t rows,
                    std::int64_t repeats) {
    const OpCase& one = cases.front();
    OpFigure figure;
    figure.name = family.name;
    figure.rows = rows;
    const auto run = [&](std::int64_t calls) {
        const Clock clock;
        for (std::int64_t i = 0; i < calls; ++i) {
            cases[static_cast<std::size_t>(i) % cases.size()].run();
        }
        for (const OpCase& each : cases) each.bed->queue().wait();
        return clock.seconds();
    };
    run(std::ssize(cases));
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

struct OpJob {
    const OpFamily* family;
    std::int64_t rows;
};

// Those whose names have the text in them.
std::vector<OpJob> jobs_of(const std::vector<OpFamily>& families, const OpBenchRequest& request,
                           bool gpu) {
    std::vector<OpJob> jobs;
    for (const OpFamily& family : families) {
        if (family.name.find(request.filter) == std::string::npos) continue;
        for (const std::int64_t rows : kOpRows) {
            if (!request.small || rows <= 4) jobs.push_back({&family, rows});
        }
        if (family.prompts && gpu && !request.small) jobs.push_back({&family, kGpuPromptRows});
    }
    return jobs;
}

}  // namespace
}  // namespace bench

Result<OpBench> bench_ops(const OpBenchRequest& request, const BenchProgress& progress) {
    if (request.repeats < 1) {
        return STRATA_ERROR(request.repeats, " repeats were asked for, wanted at least 1");
    }
    OpBench out;
    const auto fits = [](std::uint64_t) { return Status(Ok{}); };
    STRATA_ASSIGN(ChosenBackend chosen, choose_backend(request.device, request.threads, fits));
    if (chosen.gpu) {
        STRATA_ASSIGN(out.machine, bench::measure_device(*chosen.backend.device, request.small));
    } else {
        STRATA_ASSIGN(out.machine, measure_machine(request.threads, request.small));
    }
    bench::OpOptions options{request.small, request.threads};
    if (chosen.gpu) options.backend = &chosen.backend;
    const auto families = bench::op_families();
    const auto jobs = bench::jobs_of(families, request, chosen.gpu);
    for (const auto& [family, rows] : jobs) {
        if (progress && !progress(std::ssize(out.ops), std::ssize(jobs))) return bench::ended();
        std::vector<bench::OpCase> cases;
        for (int i = 0; i < (chosen.gpu ? bench::kGpuCases : 1); ++i) {
            cases.push_back(family->make(options, rows));
        }
        OpFigure figure = bench::time_cases(*family, cases, rows, request.repeats);
        for (const bench::OpCase& each : cases) STRATA_TRY(each.bed->queue().status());
        figure.floor_ms = 1e3 * figure.bytes / out.machine.read_bytes;
        out.ops.push_back(figure);
    }
    if (!out.ops.empty()) return out;
    return STRATA_ERROR("no op has ", quote(request.filter), " in its name");
}

}  // namespace strata
