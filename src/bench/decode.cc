// Windows after a context of some depth.
#include <algorithm>

#include "base/text.h"
#include "bench/clock.h"
#include "bench/runner.h"

namespace strata {
namespace {

using bench::Measured;
using bench::Runner;

Status check_request(const DecodeBenchRequest& request) {
    if (request.depth < 0 || request.tokens < 1 || request.depth > INT32_MAX ||
        request.tokens > INT32_MAX) {
        return STRATA_ERROR(request.tokens, " tokens after ", request.depth,
                            " were asked for, wanted at least 1 after 0 or more");
    }
    if (request.windows.empty()) return STRATA_ERROR("no window size was asked for");
    for (const std::int64_t rows : request.windows) {
        if (rows >= 1 && rows <= kWindowMax) continue;
        return STRATA_ERROR("a window is to have ", rows, " rows, wanted 1 to ", kWindowMax);
    }
    return Ok{};
}

// Tokens that a sequence comes to hold.
std::int64_t room_of(const DecodeBenchRequest& request) {
    return request.depth + request.tokens + kWindowMax;
}

class DecodeRun {
  public:
    DecodeRun(Runner& runner, const DecodeBenchRequest& request)
        : runner_(runner), request_(request) {}

    Status run(const BenchProgress& progress) {
        const std::int64_t room = room_of(request_);
        STRATA_ASSIGN(model::Sequence sequence,
                      runner_.target().make_sequence(runner_.sequence_options(room)));
        tokens_ = runner_.draw_tokens(room);
        windows_.resize(request_.windows.size());
        const auto all = static_cast<std::int64_t>(windows_.size()) * (request_.repeats + kUntimed);
        double ms = 0;
        STRATA_TRY(runner_.read_prompt(
            sequence, std::span(tokens_).first(static_cast<std::size_t>(request_.depth)),
            [&] { return !progress || progress(0, all); }, nullptr, &ms));
        const std::string start = runner_.target().save(sequence);
        std::int64_t done = 0;
        for (std::int64_t run = 0; run < request_.repeats + kUntimed; ++run) {
            for (std::size_t i = 0; i < windows_.size(); ++i) {
                if (progress && !progress(done++, all)) return bench::ended();
                STRATA_TRY(runner_.target().restore(sequence, start));
                windows_[i].rows = request_.windows[i];
                STRATA_TRY(decode(sequence, windows_[i], run));
            }
        }
        return Ok{};
    }

    std::vector<WorkFigure> figures(const MachineRates& rates) const {
        std::vector<WorkFigure> out;
        for (const Measured& window : windows_) out.push_back(window.figure(rates));
        return out;
    }

  private:
    // The first run counts what is read. The second is the first to be as those that follow, for
    // which devices record it.
    static constexpr std::int64_t kUntimed = 2;

    Status decode(model::Sequence& sequence, Measured& window, std::int64_t run) {
        const bool counting = run == 0;
        const std::int64_t steps = (request_.tokens + window.rows - 1) / window.rows;
        auto rest = std::span<const std::int32_t>(tokens_).subspan(
            static_cast<std::size_t>(request_.depth));
        std::uint64_t checksum = bench::kChecksumStart;
        double ms = 0;
        for (std::int64_t i = 0; i < steps; ++i) {
            model::StepRequest step;
            step.tokens = rest.first(static_cast<std::size_t>(window.rows));
            step.window = true;
            step.logits = model::LogitRows::all;
            rest = rest.subspan(step.tokens.size());
            STRATA_TRY(runner_.step(sequence, step, counting ? &window : nullptr, checksum, ms));
        }
        if (counting) {
            window.steps = steps;
            window.checksum = checksum;
            return Ok{};
        }
        if (run >= kUntimed) window.ms.push_back(ms / static_cast<double>(steps));
        return check_same(window, checksum);
    }

    Runner& runner_;
    const DecodeBenchRequest& request_;
    std::vector<std::int32_t> tokens_;
    std::vector<Measured> windows_;
};

}  // namespace

Result<DecodeBench> bench_decode(const DecodeBenchRequest& request, const BenchProgress& progress) {
    STRATA_TRY(check_request(request));
    STRATA_ASSIGN(Runner runner, Runner::load(request, kWindowMax, room_of(request), true));
    STRATA_ASSIGN(MachineRates before, runner.rates());
    DecodeRun run(runner, request);
    STRATA_TRY(run.run(progress));
    // The better of two moments: a bound is what the machine can do.
    STRATA_ASSIGN(const MachineRates after, runner.rates());
    const MachineRates rates = bench::better(before, after);
    return DecodeBench{rates, runner.table_reads(), run.figures(rates)};
}

}  // namespace strata
