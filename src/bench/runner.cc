#include "bench/runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backend/choose.h"
#include "base/text.h"
#include "bench/clock.h"
#include "bench/device_rates.h"
#include "bench/draft_work.h"
#include "engine/fit.h"

namespace strata::bench {
namespace {

std::vector<std::int64_t> experts_read(const model::StepResult& result, std::int64_t layers) {
    std::vector<std::int64_t> counts;
    const std::int64_t rows = result.chosen.rows / layers;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const std::int32_t* first = result.chosen.row(layer * rows);
        counts.push_back(static_cast<std::int64_t>(
            std::set<std::int32_t>(first, first + rows * result.chosen.cols).size()));
    }
    return counts;
}

double mean(const std::vector<std::int64_t>& counts) {
    double sum = 0;
    for (const std::int64_t count : counts) sum += static_cast<double>(count);
    return sum / static_cast<double>(counts.size());
}

Result<std::optional<gguf::File>> open_given(const std::string& path) {
    if (path.empty()) return std::optional<gguf::File>();
    STRATA_ASSIGN(gguf::File file, gguf::File::open(path));
    return std::optional(std::move(file));
}

}  // namespace

WorkFigure Measured::figure(const MachineRates& rates) const {
    const auto n = static_cast<double>(steps);
    WorkFigure out;
    out.rows = rows;
    out.ms = spread(ms);
    out.bytes = {work.bytes.experts / n, work.bytes.head / n, work.bytes.dense / n,
                 work.bytes.rows / n, work.bytes.state / n};
    out.multiply_adds = work.multiply_adds.all() / n;
    out.experts_read = experts_read / n;
    out.bytes_ms = work.bytes_ms(rates) / n;
    out.multiply_adds_ms = work.multiply_adds_ms(rates) / n;
    out.checksum = checksum;
    out.top_token = top_token;
    return out;
}

Result<Runner> Runner::load(const BenchOptions& options, std::int64_t rows_max,
                            std::int64_t context, bool saves) {
    const EngineOptions& model = options.model;
    if (options.repeats < 1) {
        return STRATA_ERROR(options.repeats, " repeats were asked for, wanted at least 1");
    }
    if (model.chunk < 1 || model.chunk > kChunkRowsMax) {
        return STRATA_ERROR("the chunk is ", model.chunk, " tokens, wanted 1 to ", kChunkRowsMax);
    }
    Runner runner(options);
    runner.cache_ = cache_type(model.cache);
    STRATA_ASSIGN(gguf::File file, gguf::File::open(model.model));
    STRATA_ASSIGN(std::optional<gguf::File> mtp, open_given(model.mtp));
    STRATA_ASSIGN(std::optional<gguf::File> draft, open_given(model.dflash));
    const EngineFiles files{&file, mtp ? &*mtp : nullptr, draft ? &*draft : nullptr};
    EngineOptions planned = model;
    planned.context = context;
    if (!saves) planned.checkpoints = 0;
    const auto fits = [&](std::optional<std::uint64_t> device) -> Status {
        STRATA_ASSIGN([[maybe_unused]] const model::Fit fit, fit_engine(planned, files, device));
        return Ok{};
    };
    STRATA_ASSIGN(ChosenBackend chosen, choose_backend(model.device, model.threads, fits));
    if (!chosen.gpu) STRATA_TRY(fits(std::nullopt));
    runner.backend_ = std::move(chosen.backend);
    runner.gpu_ = chosen.gpu;
    STRATA_ASSIGN(runner.target_,
                  model::Target::load(std::move(file), *runner.backend_.device, runner.backend_.ops,
                                      std::max(rows_max, model.chunk),
                                      {.cache_bytes = model.ngram_cache}, std::move(mtp)));
    if (draft) {
        STRATA_ASSIGN(
            runner.dflash_,
            dflash::BlockModel::load(*std::move(draft), *runner.target_, *runner.backend_.device,
                                     runner.backend_.ops, runner.target_->rows_max()));
    }
    runner.count_ = std::make_unique<WorkCount>(runner.target_->file(), runner.target_->config(),
                                                runner.cache_);
    return runner;
}

model::SequenceOptions Runner::sequence_options(std::int64_t context) const {
    return {context, cache_, false};
}

BytesRead Runner::draft_bytes(bool block, std::int64_t length, std::int64_t guesses) const {
    const double head = count_->head_bytes();
    if (block) {
        return block_draft_bytes(dflash_->file(), dflash_->config(), cache_, head, length, guesses);
    }
    const gguf::File* own = target_->mtp_file();
    return mtp_draft_bytes(own != nullptr ? *own : target_->file(), target_->config(), cache_, head,
                           length, guesses);
}

std::vector<std::int32_t> Runner::draw_tokens(std::int64_t count) const {
    const auto vocabulary = static_cast<std::uint64_t>(target_->config().vocabulary);
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint64_t at = options_.one_token ? 0 : static_cast<std::uint64_t>(i);
        tokens.push_back(static_cast<std::int32_t>(mixed(options_.seed, at) % vocabulary));
    }
    return tokens;
}

Status Runner::step(model::Sequence& sequence, model::StepRequest request, Measured* counted,
                    std::uint64_t& checksum, double& ms) {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const std::int64_t first = sequence.length();
    request.chosen = counted != nullptr;
    const Clock clock;
    STRATA_ASSIGN(const model::StepResult result, target_->step(sequence, request));
    target_->commit(sequence, rows);
    ++steps_;
    ms += clock.ms();
    checksum = add_to_checksum(
        checksum, {result.logits.data, static_cast<std::size_t>(result.logits.size())});
    if (counted != nullptr) {
        const auto read = experts_read(result, target_->config().layers);
        counted->work.add(count_->step({first, rows, result.logits.rows}, read));
        counted->experts_read += mean(read);
        if (result.logits.rows > 0) {
            const float* last = result.logits.row(result.logits.rows - 1);
            counted->top_token =
                static_cast<std::int32_t>(std::max_element(last, last + result.logits.cols) - last);
        }
    }
    return Ok{};
}

Status Runner::read_prompt(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                           const std::function<bool()>& go_on, Measured* measured, double* ms) {
    std::uint64_t checksum = kChecksumStart;
    double taken = 0;
    std::int64_t chunks = 0;
    Measured counted;
    while (!tokens.empty()) {
        if (!go_on()) return ended();
        const auto rows = std::min(static_cast<std::size_t>(options_.model.chunk), tokens.size());
        model::StepRequest request;
        request.tokens = tokens.first(rows);
        request.form = options_.model.prompt_form == PromptForm::chunked ? op::DeltaForm::chunked
                                                                         : op::DeltaForm::recurrent;
        tokens = tokens.subspan(rows);
        request.logits = tokens.empty() ? model::LogitRows::last : model::LogitRows::none;
        STRATA_TRY(step(sequence, request, ms == nullptr ? &counted : nullptr, checksum, taken));
        ++chunks;
    }
    if (ms != nullptr) {
        *ms = taken;
        return measured == nullptr ? Status(Ok{}) : check_same(*measured, checksum);
    }
    if (measured != nullptr) {
        measured->work = counted.work;
        measured->experts_read = counted.experts_read / static_cast<double>(chunks);
        measured->steps = 1;
        measured->checksum = checksum;
        measured->top_token = counted.top_token;
    }
    return Ok{};
}

Result<MachineRates> Runner::rates() {
    if (gpu_) return measure_device(*backend_.device, options_.small);
    return measure_machine(options_.model.threads, options_.small);
}

TableReads Runner::table_reads() const {
    const model::RowCounters counters = target_->ngram_counters();
    return {.mapped = !target_->reads_ngram_rows(),
            .hits = counters.hits,
            .misses = counters.misses,
            .wait_ms = steps_ == 0 ? 0 : counters.wait_ms / static_cast<double>(steps_)};
}

Status check_same(const Measured& measured, std::uint64_t found) {
    if (found == measured.checksum) return Ok{};
    return STRATA_ERROR("two runs over the same tokens computed different logits, of checksums ",
                        measured.checksum, " and ", found);
}

}  // namespace strata::bench
