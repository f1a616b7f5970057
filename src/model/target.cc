#include "model/target.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "device/carver.h"
#include "gguf/content_mark.h"
#include "model/ngram_rows.h"

namespace strata::model {
namespace {

// theta^(-2i / rotary width), i < width / 2.
std::vector<double> inverse_frequencies(const Config& config) {
    std::vector<double> values;
    for (int i = 0; i < config.rotary_dim / 2; ++i) {
        values.push_back(std::pow(config.rope_base, -2.0 * i / config.rotary_dim));
    }
    return values;
}

}  // namespace

Result<std::unique_ptr<Target>> Target::load(gguf::File file, device::Device& device,
                                             const op::Table& ops, std::int64_t rows_max,
                                             const NgramOptions& ngram,
                                             std::optional<gguf::File> mtp) {
    STRATA_CHECK(rows_max >= 1);
    std::unique_ptr<Target> target(new Target(std::move(file), device, ops));
    STRATA_ASSIGN(target->config_, config_from_gguf(target->file_));
    STRATA_ASSIGN(const std::uint64_t available, device.available());
    STRATA_TRY(check_room(target->file_, target->config_, available));
    target->queue_ = device.make_queue();
    target->mtp_file_ = std::move(mtp);
    if (target->mtp_file_) target->config_.mtp_layers = 0;
    const std::int64_t cache = ngram_cache_bytes(target->file_, ngram.cache_bytes);
    STRATA_ASSIGN(target->weights_, Weights::bind(target->file_, target->config_, device,
                                                  *target->queue_, cache == 0));
    STRATA_TRY(target->open_ngram(cache, ngram.method, rows_max));
    if (target->mtp_file_) STRATA_TRY(target->bind_mtp());
    STRATA_TRY(target->prepare(rows_max));
    target->queue_->wait();
    STRATA_TRY(target->status());
    return target;
}

std::int64_t ngram_cache_bytes(const gguf::File& file, std::optional<std::int64_t> asked) {
    const gguf::Tensor* table = file.find_tensor("per_layer_token_embd.weight");
    const std::size_t bytes = table == nullptr ? 0 : table->data.size();
    return asked.value_or(bytes > kNgramMappedBytes ? kNgramCacheBytes : 0);
}

Status Target::open_ngram(std::int64_t cache, ReadMethod method, std::int64_t rows_max) {
    if (!config_.ngram.present()) return Ok{};
    const NgramWeights& weights = *weights_.ngram;
    at_.work.ngram_table = weights.table;
    if (cache == 0) return Ok{};
    const std::int64_t request = rows_max * config_.ngram.heads();
    STRATA_ASSIGN(ngram_reader_, RowReader::open(weights.stored, request, cache, method));
    ngram_read_.resize(static_cast<std::size_t>(request * weights.table.row_bytes));
    return Ok{};
}

Status Target::bind_mtp() {
    STRATA_TRY(mtp_layer_from_gguf(*mtp_file_, config_));
    config_.mtp_layers = 1;
    return weights_.bind_mtp(*mtp_file_, config_, *device_, *queue_);
}

Target::~Target() { unpin(); }

void Target::unpin() {
    if (!pinned_.empty()) device_->unpin(pinned_);
    pinned_ = {};
}

// Memory that is pinned must not be moved by a vector that outgrows it.
void Target::grow(std::vector<float>& values, std::size_t size) {
    if (&values == &logits_ && size > logits_.capacity()) unpin();
    values.resize(size);
}

Status Target::prepare(std::int64_t rows_max) {
    rows_max_ = rows_max;
    const std::vector<double> frequencies = inverse_frequencies(config_);
    const auto read_bytes = static_cast<std::int64_t>(ngram_read_.size());
    const op::Weight table = at_.work.ngram_table;
    device::Carver measure;
    at_.lay_out(config_, rows_max, read_bytes, measure);
    STRATA_ASSIGN(memory_, device_->allocate(measure.used()));
    device::Carver pieces(memory_.data());
    at_.lay_out(config_, rows_max, read_bytes, pieces);
    at_.work.ngram_table = table;
    device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.inverse_frequency.data),
                    std::as_bytes(std::span(frequencies)));
    logits_.reserve(static_cast<std::size_t>(at_.logits.size()));
    pinned_ = std::as_writable_bytes(std::span(logits_.data(), logits_.capacity()));
    device_->pin(pinned_);
    if (ngram_reader_ != nullptr) {
        // The rows of a step lie in the order in which they are wanted.
        ngram_rows_.resize(static_cast<std::size_t>(at_.work.ngram_rows.size()));
        std::iota(ngram_rows_.begin(), ngram_rows_.end(), std::int64_t{0});
        upload_ngram_rows();
        at_.work.ngram_table.data = at_.ngram_read;
        at_.work.ngram_table.rows = at_.work.ngram_rows.size();
    }
    return Ok{};
}

Result<Sequence> Target::make_sequence(const SequenceOptions& options) {
    return Sequence::create(config_, *device_, options);
}

Status Target::check_token(std::int32_t token) const {
    if (token >= 0 && token < config_.vocabulary) return Ok{};
    return STRATA_ERROR("token ", token, " is outside the vocabulary, wanted 0 to ",
                        config_.vocabulary - 1);
}

Status Target::check_step(const Sequence& sequence, const StepRequest& request) const {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const std::int64_t rows_max = request.window ? std::min(rows_max_, kWindowRowsMax) : rows_max_;
    STRATA_CHECK(!sequence.stepping());
    STRATA_TRY(weights_.residency.all_in_slots());
    if (rows < 1 || rows > rows_max) {
        return STRATA_ERROR("a step has ", rows, " rows, wanted 1 to ", rows_max);
    }
    if (sequence.length() + rows > sequence.context()) {
        return STRATA_ERROR("the sequence has ", sequence.length(), " tokens and would get ", rows,
                            " more, wanted at most the context of ", sequence.context());
    }
    for (const std::int32_t token : request.tokens) STRATA_TRY(check_token(token));
    const FeaturePlace& place = request.features_to;
    STRATA_CHECK(place.rows.empty() ||
                 (request.window && place.at >= 0 && place.at + rows <= place.rows.rows &&
                  place.rows.cols == std::ssize(request.feature_layers) * config_.hidden));
    for (const std::int64_t layer : request.feature_layers) {
        if (layer < 0 || layer >= config_.layers) {
            return STRATA_ERROR("features of layer ", layer, " were asked for, wanted 0 to ",
                                config_.layers - 1);
        }
    }
    return Ok{};
}

void Target::upload_tokens(std::span<const std::int32_t> tokens) {
    device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.work.tokens.data),
                    std::as_bytes(tokens));
}

void Target::upload_ngram_rows() {
    device_->upload(*queue_, reinterpret_cast<std::byte*>(at_.work.ngram_rows.data),
                    std::as_bytes(std::span(ngram_rows_)));
}

void Target::find_ngram_rows(const Sequence& sequence, std::span<const std::int32_t> tokens) {
    if (!config_.ngram.present()) return;
    ngram_rows(config_.ngram, sequence.tokens(), tokens, ngram_rows_);
    if (ngram_reader_ == nullptr) {
        upload_ngram_rows();
    } else {
        ngram_reader_->start(ngram_rows_);
    }
}

// Waits for what find_ngram_rows started to read.
Status Target::bring_ngram_rows() {
    if (ngram_reader_ == nullptr) return Ok{};
    STRATA_TRY(ngram_reader_->finish(ngram_read_.data()));
    const std::size_t bytes =
        ngram_rows_.size() * static_cast<std::size_t>(at_.work.ngram_table.row_bytes);
    device_->upload(*queue_, at_.ngram_read, std::span<const std::byte>(ngram_read_).first(bytes));
    return Ok{};
}

Forward Target::forward(const op::Table& ops, const Workspace& work, Forward::Start start) {
    return {config_, weights_, at_.inverse_frequency.data, ops, *queue_, work, start};
}

Result<StepResult> Target::step(Sequence& sequence, const StepRequest& request) {
    STRATA_TRY(check_step(sequence, request));
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const bool room = sequence.mtp_.waiting_rows + rows <= sequence.mtp_.waiting.rows;
    if (!request.window || !room) catch_up(sequence);
    logits_on_device_ = 0;
    row_picks_.clear();
    const bool recorded = is_recorded(request);
    if (recorded) {
        tell_pass(sequence.length(), request.features_to.at, request.tokens, request.ends);
    } else {
        upload_tokens(request.tokens);
    }
    find_ngram_rows(sequence, request.tokens);
    STRATA_TRY(recorded ? run_recorded(sequence, request) : run(sequence, request));
    queue_->wait();
    STRATA_TRY(status());
    sequence.pending_.assign(request.tokens.begin(), request.tokens.end());
    sequence.pending_traced_ = request.window;
    sequence.next_rows_ = accepts(request) ? accepted(request) : rows;
    const auto layers = static_cast<std::int64_t>(request.feature_layers.size());
    const bool placed = !request.features_to.rows.empty();
    return StepResult{
        {logits_.data(), static_cast<std::int64_t>(logits_.size()) / config_.vocabulary,
         config_.vocabulary},
        row_picks_,
        {features_.data(), layers == 0 || placed ? 0 : rows, layers * config_.hidden},
        {residual_.data(), request.residual ? rows : 0, config_.stream_width()},
        {chosen_.data(), static_cast<std::int64_t>(chosen_.size()) / config_.experts_active,
         config_.experts_active}};
}

Status Target::run(Sequence& sequence, const StepRequest& request) {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const op::Table& ops = request.window ? ops_ : ops_.for_prompts();
    Forward pass = forward(ops, at_.work.first_rows(rows), {sequence.length()});
    STRATA_TRY(run_layers(sequence, pass, request, false));
    if (is_mixed(sequence, request)) pass.mix(weights_.mixer);
    take_residual(request.residual ? rows : 0);
    logits_.clear();
    if (request.logits == LogitRows::none) return Ok{};
    const std::int64_t from = request.logits == LogitRows::all ? 0 : rows - 1;
    if (request.logit_sink != nullptr) {
        return sink_logits(pass, from, rows - from, weights_.head, *request.logit_sink);
    }
    take_logits(pass, from, rows - from, weights_.head, logits_);
    return Ok{};
}

Status Target::run_layers(Sequence& sequence, Forward& pass, const StepRequest& request,
                          bool recorded) {
    const Forward::Mode mode{request.form, request.window};
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const auto wanted = static_cast<std::int64_t>(request.feature_layers.size());
    const bool to_host = !recorded && request.features_to.rows.empty();
    features_.resize(to_host ? static_cast<std::size_t>(rows * wanted * config_.hidden) : 0);
    chosen_.clear();
    auto delta = sequence.delta_.begin();
    auto attention = sequence.attention_.begin();

    pass.embed();
    for (std::int64_t l = 0; l < config_.layers; ++l) {
        const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(l)];
        if (l == config_.ngram.layer) {
            if (!recorded) STRATA_TRY(bring_ngram_rows());
            pass.add_ngram(sequence.ngram_, mode);
        }
        if (layer.attention) {
            pass.attention(layer, *attention++, mode.traced);
        } else {
            pass.delta_net(layer, *delta++, mode);
        }
        pass.experts(layer, request.chosen);
        if (request.chosen) take_chosen(rows);
        for (std::int64_t i = 0; i < wanted; ++i) {
            if (request.feature_layers[static_cast<std::size_t>(i)] != l) continue;
            mean_feature(pass, request, i, recorded);
        }
    }
    return Ok{};
}

// To where they are wanted, or all layers together for the host, or one layer's after the other to
// it.
void Target::mean_feature(Forward& pass, const StepRequest& request, std::int64_t index,
                          bool recorded) {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const std::int64_t hidden = config_.hidden;
    const FeaturePlace& place = request.features_to;
    if (!place.rows.empty()) {
        float* const first = recorded ? place.rows.data : place.rows.row(place.at);
        pass.stream_mean({first + index * hidden, rows, hidden}, place.rows.cols,
                         recorded ? &at_.told_pass->feature_row : nullptr);
        return;
    }
    if (recorded) {
        const MatrixView<float> together = features_of(request);
        pass.stream_mean({together.data + index * hidden, rows, hidden}, together.cols);
        return;
    }
    const MatrixView<float> mean = at_.mean.first_rows(rows);
    pass.stream_mean(mean, hidden);
    take_feature(mean, index, static_cast<std::int64_t>(request.feature_layers.size()));
}

MatrixView<float> Target::features_of(const StepRequest& request) const {
    const auto rows = static_cast<std::int64_t>(request.tokens.size());
    const auto layers = static_cast<std::int64_t>(request.feature_layers.size());
    if (layers == 0 || rows * layers > at_.mean.rows) return {};
    return {at_.mean.data, rows, layers * config_.hidden};
}

void Target::take_feature(MatrixView<const float> mean, std::int64_t index, std::int64_t layers) {
    mean_.resize(static_cast<std::size_t>(mean.size()));
    device_->download(*queue_, std::as_writable_bytes(std::span(mean_)),
                      reinterpret_cast<const std::byte*>(mean.data));
    for (std::int64_t r = 0; r < mean.rows; ++r) {
        std::copy_n(mean_.begin() + r * config_.hidden, config_.hidden,
                    features_.begin() + (r * layers + index) * config_.hidden);
    }
}

void Target::take_residual(std::int64_t rows) {
    residual_.resize(static_cast<std::size_t>(rows * config_.stream_width()));
    if (rows == 0) return;
    device_->download(*queue_, std::as_writable_bytes(std::span(residual_)),
                      reinterpret_cast<const std::byte*>(at_.work.residual.data));
}

void Target::take_chosen(std::int64_t rows) {
    const std::size_t at = chosen_.size();
    chosen_.resize(at + static_cast<std::size_t>(rows * config_.experts_active));
    device_->download(*queue_, std::as_writable_bytes(std::span(chosen_).subspan(at)),
                      reinterpret_cast<const std::byte*>(at_.work.chosen.data));
}

Status Target::sink_logits(Forward& pass, std::int64_t from, std::int64_t rows,
                           const op::Weight& head, const LogitSink& sink) {
    for (std::int64_t done = 0; done < rows;) {
        const std::int64_t now = std::min(rows - done, at_.logits.rows);
        logits_.clear();
        take_logits(pass, from + done, now, head, logits_);
        STRATA_TRY(status());
        STRATA_TRY(sink({logits_.data(), now, config_.vocabulary}));
        done += now;
    }
    logits_.clear();
    return Ok{};
}

void Target::take_logits(Forward& pass, std::int64_t from, std::int64_t rows,
                         const op::Weight& head, std::vector<float>& out) {
    while (rows > 0) {
        const std::int64_t now = std::min(rows, at_.logits.rows);
        pass.head(from, head, {at_.logits.data, now, head.rows});
        const std::size_t at = out.size();
        grow(out, at + static_cast<std::size_t>(now * head.rows));
        device_->download(*queue_, std::as_writable_bytes(std::span(out).subspan(at)),
                          reinterpret_cast<const std::byte*>(at_.logits.data));
        from += now;
        rows -= now;
    }
}

std::span<const float> Target::fetch_logits(std::int64_t row) {
    STRATA_CHECK(row >= 0 && row < logits_on_device_);
    grow(logits_, static_cast<std::size_t>(config_.vocabulary));
    device_->download(*queue_, std::as_writable_bytes(std::span(logits_)),
                      reinterpret_cast<const std::byte*>(at_.logits.row(row)));
    return logits_;
}

void Target::commit(Sequence& sequence, std::int64_t rows) {
    commit_state(sequence, rows);
    if (sequence.options().mtp && rows > 0) {
        static_cast<void>(keep_mtp_rows(sequence, rows, nullptr));
    }
    queue_->wait();
}

Status Target::commit(Sequence& sequence, std::int64_t rows, const LogitSink& mtp_logits) {
    STRATA_CHECK(sequence.options().mtp);
    STRATA_TRY(weights_.residency.all_in_slots());
    commit_state(sequence, rows);
    if (rows > 0) STRATA_TRY(keep_mtp_rows(sequence, rows, &mtp_logits));
    queue_->wait();
    return status();
}

// Found when it is first wanted: it reads a little of every tensor.
const std::string& Target::mark() {
    if (mark_.empty()) {
        mark_ = gguf::content_mark(file_);
        if (mtp_file_) mark_ += gguf::content_mark(*mtp_file_);
    }
    return mark_;
}

std::string Target::save(Sequence& sequence) {
    catch_up(sequence);
    return mark() + sequence.save(*queue_);
}

Status Target::restore(Sequence& sequence, std::string_view saved) {
    if (!saved.starts_with(mark())) {
        return STRATA_ERROR("a saved state of ", saved.size(),
                            " bytes was not saved with the files of this model");
    }
    return sequence.restore(*queue_, saved.substr(mark().size()));
}

}  // namespace strata::model
