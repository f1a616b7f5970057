// Drafts after a context that grows by a token each time, as a drafter's guesses are wrong.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "bench/clock.h"
#include "bench/draft_work.h"
#include "bench/runner.h"
#include "spec/dflash_drafter.h"
#include "spec/mtp.h"

namespace strata {
namespace {

using bench::Runner;

// A drafter and the number of its guesses.
struct Drafting {
    bool block = false;
    std::int64_t guesses = 0;
    std::uint64_t checksum = bench::kChecksumStart;
    std::vector<double> ms;
};

// Drafts of a repeat that are not timed: the first takes in what waits of the prompt, and a GPU
// records the work of a draft before it repeats it.
constexpr std::int64_t kFirstDrafts = 3;

std::int64_t room_of(const DraftBenchRequest& request) {
    const std::int64_t most = *std::ranges::max_element(request.guesses);
    return request.depth + kFirstDrafts + request.drafts + most + 1;
}

// Tokens before a draft, on average over those that are timed.
std::int64_t mean_length(const DraftBenchRequest& request) {
    return request.depth + kFirstDrafts + (request.drafts + 1) / 2;
}

Status check_request(const DraftBenchRequest& request) {
    if (request.guesses.empty()) return STRATA_ERROR("no number of guesses, wanted one");
    for (const std::int64_t guesses : request.guesses) {
        if (guesses >= 1 && guesses < kWindowMax) continue;
        return STRATA_ERROR("a draft of ", guesses, " guesses was asked for, wanted 1 to ",
                            kWindowMax - 1);
    }
    const std::int64_t least = std::min(request.depth, request.drafts);
    if (least < 1 || std::max(request.depth, request.drafts) > INT32_MAX) {
        return STRATA_ERROR(request.drafts, " drafts after ", request.depth,
                            " tokens were asked for, wanted 1 to ", INT32_MAX, " of each");
    }
    return Ok{};
}

class DraftRun {
  public:
    DraftRun(Runner& runner, const DraftBenchRequest& request)
        : runner_(runner), request_(request) {}

    Status run(const BenchProgress& progress) {
        STRATA_TRY(list());
        tokens_ = runner_.draw_tokens(room_of(request_));
        const auto all = static_cast<std::int64_t>(draftings_.size()) * (request_.repeats + 1);
        std::int64_t done = 0;
        for (std::int64_t repeat = 0; repeat <= request_.repeats; ++repeat) {
            for (Drafting& one : draftings_) {
                if (progress && !progress(done++, all)) return bench::ended();
                STRATA_TRY(draft(one, repeat == 0));
            }
        }
        return Ok{};
    }

    std::vector<DraftFigure> figures(const MachineRates& rates) const {
        std::vector<DraftFigure> out;
        for (const Drafting& one : draftings_) {
            DraftFigure figure;
            figure.kind = one.block ? DraftKind::dflash : DraftKind::mtp;
            figure.guesses = one.guesses;
            figure.ms = bench::spread(one.ms);
            figure.bytes = runner_.draft_bytes(one.block, mean_length(request_), one.guesses);
            figure.floor_ms = 1e3 * figure.bytes.all() / rates.read_bytes;
            figure.checksum = one.checksum;
            out.push_back(figure);
        }
        return out;
    }

  private:
    Status list() {
        for (const std::int64_t guesses : request_.guesses) {
            const dflash::BlockModel* block = runner_.dflash();
            if (block != nullptr && guesses >= block->config().block_size) {
                return STRATA_ERROR("a draft of ", guesses, " guesses was asked for, wanted 1 to ",
                                    block->config().block_size - 1, " of this one");
            }
            if (block != nullptr) draftings_.push_back({.block = true, .guesses = guesses});
            if (runner_.has_mtp()) draftings_.push_back({.guesses = guesses});
        }
        if (!draftings_.empty()) return Ok{};
        return STRATA_ERROR(quote(request_.model.model),
                            " has no MTP layer and no draft was given, wanted one of them");
    }

    Result<std::unique_ptr<spec::Drafter>> make(const Drafting& one, model::Sequence& sequence) {
        if (!one.block) {
            return std::unique_ptr<spec::Drafter>(
                std::make_unique<spec::MtpDrafter>(runner_.target(), sequence, 0.0f));
        }
        STRATA_ASSIGN(auto made,
                      spec::DflashDrafter::create(
                          *runner_.dflash(), {sequence.options().context, runner_.cache()}, 0.0f));
        return std::unique_ptr<spec::Drafter>(std::move(made));
    }

    // Runs tokens first .. first+rows-1, and the drafter takes what it needs of them.
    Status step(model::Sequence& sequence, spec::Drafter& drafter, std::int64_t rows,
                std::int64_t end, bool window) {
        const std::int64_t first = sequence.length();
        model::StepRequest request;
        request.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(first),
                                                    static_cast<std::size_t>(rows));
        request.window = window;
        request.logits = window ? model::LogitRows::all : model::LogitRows::none;
        drafter.want({first, rows, end}, request);
        STRATA_ASSIGN(const model::StepResult result, runner_.target().step(sequence, request));
        STRATA_TRY(drafter.keep(first, request.tokens, result));
        runner_.target().commit(sequence, rows);
        return Ok{};
    }

    Status draft(Drafting& one, bool counting) {
        auto options = runner_.sequence_options(room_of(request_));
        options.mtp = !one.block;
        STRATA_ASSIGN(model::Sequence sequence, runner_.target().make_sequence(options));
        STRATA_ASSIGN(const auto drafter, make(one, sequence));
        while (sequence.length() < request_.depth) {
            const std::int64_t rows =
                std::min(request_.model.chunk, request_.depth - sequence.length());
            STRATA_TRY(step(sequence, *drafter, rows, request_.depth, false));
        }
        std::uint64_t checksum = bench::kChecksumStart;
        double ms = 0;
        for (std::int64_t i = -kFirstDrafts; i < request_.drafts; ++i) {
            STRATA_TRY(step(sequence, *drafter, 1, sequence.length() + 1, true));
            const auto text =
                std::span(tokens_).first(static_cast<std::size_t>(sequence.length()) + 1);
            const bench::Clock clock;
            STRATA_ASSIGN(const spec::Guesses got,
                          drafter->guess({text, one.guesses, nullptr, {}}));
            if (i >= 0) ms += clock.ms();
            checksum = bench::add_to_checksum(checksum, got.tokens);
        }
        STRATA_TRY(runner_.target().status());
        if (counting) {
            one.checksum = checksum;
            return Ok{};
        }
        one.ms.push_back(ms / static_cast<double>(request_.drafts));
        if (checksum == one.checksum) return Ok{};
        return STRATA_ERROR("two runs over the same tokens made different guesses, of checksums ",
                            one.checksum, " and ", checksum);
    }

    Runner& runner_;
    const DraftBenchRequest& request_;
    std::vector<std::int32_t> tokens_;
    std::vector<Drafting> draftings_;
};

}  // namespace

Result<DraftBench> bench_draft(const DraftBenchRequest& request, const BenchProgress& progress) {
    STRATA_TRY(check_request(request));
    STRATA_ASSIGN(Runner runner, Runner::load(request, kWindowMax, room_of(request), false));
    STRATA_ASSIGN(const MachineRates before, runner.rates());
    DraftRun run(runner, request);
    STRATA_TRY(run.run(progress));
    STRATA_ASSIGN(const MachineRates after, runner.rates());
    const MachineRates rates = bench::better(before, after);
    return DraftBench{rates, run.figures(rates)};
}

}  // namespace strata
