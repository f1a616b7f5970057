#include "spec/dflash/block_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "gguf/content_mark.h"
#include "model/recorded.h"

namespace strata::dflash {

namespace {

// Of the first row that is injected, and of the anchor.
constexpr std::int64_t kPositions = 2;
constexpr std::int64_t kPositionWords = sizeof(std::int64_t) / sizeof(std::int32_t);

// theta^(-2i / rotary width), i < width / 2.
std::vector<double> inverse_frequencies(const Config& config) {
    std::vector<double> values;
    for (int i = 0; i < config.rotary_dim / 2; ++i) {
        values.push_back(std::pow(config.rope_base, -2.0 * i / config.rotary_dim));
    }
    return values;
}

template <typename T>
std::vector<T> download(device::Device& device, device::Queue& queue, const T* from,
                        std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device.download(queue, std::as_writable_bytes(std::span(values)),
                    reinterpret_cast<const std::byte*>(from));
    return values;
}

}  // namespace

Result<std::unique_ptr<BlockModel>> BlockModel::load(gguf::File file, model::Target& target,
                                                     device::Device& device, const op::Table& ops,
                                                     std::int64_t rows_max) {
    STRATA_CHECK(rows_max >= 1);
    if (ops.dflash_inject == nullptr || ops.dflash_block == nullptr ||
        ops.dflash_select == nullptr) {
        return STRATA_ERROR(quote(file.path()), ": ", device.name(),
                            " has no kernels for block drafts");
    }
    std::unique_ptr<BlockModel> model(new BlockModel(std::move(file), device, ops));
    const gguf::File& own = model->file_;
    STRATA_ASSIGN(model->config_, config_from_gguf(own));
    if (Status status = check_target(model->config_, target.config()); !status.ok()) {
        return STRATA_ERROR(quote(own.path()), ": ", status.error().message);
    }
    model->queue_ = &target.queue();
    model->number_ = target.number_drafter();
    STRATA_ASSIGN(model->weights_, Weights::bind(own, model->config_, device, *model->queue_));
    Weights& weights = model->weights_;
    if (weights.embedding.empty()) weights.embedding = target.weights().embedding;
    if (weights.head.empty()) weights.head = target.weights().head;
    STRATA_TRY(model->prepare(rows_max));
    model->mark_ = gguf::content_mark(own);
    return model;
}

BlockModel::Workspace BlockModel::lay_out(const Config& config, std::int64_t head_rows,
                                          std::int64_t rows_max, device::Carver& carver) {
    Workspace work;
    const std::int64_t guesses = config.block_size - 1;
    work.features = carver.matrix<float>(rows_max, config.feature_width());
    work.replaced = carver.vector<std::int32_t>(rows_max);
    auto* const told =
        carver.take_bytes(kPositions * kPositionWords + config.block_size, sizeof(std::int32_t));
    work.positions = reinterpret_cast<std::int64_t*>(told);
    work.tokens = {reinterpret_cast<std::int32_t*>(work.positions + kPositions), config.block_size};
    // Right after it, so that all of it is told at once.
    static_assert(sizeof(op::DrawRule) % device::kBufferAlignment == 0);
    work.rule = carver.take<op::DrawRule>(1);
    work.penalized = carver.vector<op::Penalized>(op::kPenalizedMax);
    work.hidden = carver.matrix<float>(config.block_size, config.hidden);
    work.logits = carver.matrix<float>(guesses, head_rows);
    const std::int64_t width = config.candidates;
    work.results =
        carver.vector<std::int32_t>(model::kWindowRowsMax + 1 + 2 * guesses * (1 + width));
    work.replaced_now = {work.results.data, model::kWindowRowsMax};
    work.walked = work.results.data + model::kWindowRowsMax;
    work.path = {work.walked + 1, guesses};
    static_assert(sizeof(float) == sizeof(std::int32_t));
    work.confidence = {reinterpret_cast<float*>(work.path.data + guesses), guesses};
    work.candidates = {work.path.data + 2 * guesses, guesses, width};
    work.scores = {reinterpret_cast<float*>(work.candidates.data + guesses * width), guesses,
                   width};
    work.frequencies = carver.vector<double>(config.rotary_dim / 2);
    return work;
}

std::uint64_t BlockModel::workspace_bytes(const Config& config, std::int64_t rows_max) {
    device::Carver measure;
    lay_out(config, config.vocabulary, rows_max, measure);
    return measure.used();
}

Status BlockModel::prepare(std::int64_t rows_max) {
    const std::int64_t head_rows = weights_.head.rows;
    device::Carver measure;
    lay_out(config_, head_rows, rows_max, measure);
    STRATA_ASSIGN(memory_, device_->allocate(measure.used()));
    device::Carver carver(memory_.data());
    work_ = lay_out(config_, head_rows, rows_max, carver);
    results_.resize(static_cast<std::size_t>(work_.results.size));
    const std::vector<double> frequencies = inverse_frequencies(config_);
    device_->upload(*queue_, reinterpret_cast<std::byte*>(work_.frequencies.data),
                    std::as_bytes(std::span(frequencies)));
    // The first of them is the anchor of each draft.
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(config_.block_size),
                                           static_cast<std::int32_t>(config_.mask_token));
    device_->upload(*queue_, reinterpret_cast<std::byte*>(work_.tokens.data),
                    std::as_bytes(std::span(tokens)));
    queue_->wait();
    return queue_->status();
}

std::string BlockModel::save(const Context& context) { return mark_ + context.save(*queue_); }

Status BlockModel::restore(Context& context, std::string_view saved) {
    if (!saved.starts_with(mark_)) {
        return STRATA_ERROR("a draft's context of ", saved.size(),
                            " bytes is not one that this draft saved");
    }
    return context.restore(saved.substr(mark_.size()), *queue_);
}

op::DflashShape BlockModel::shape() const {
    return {config_.heads, config_.kv_heads, config_.head_dim, config_.rotary_dim / 2};
}

void BlockModel::inject(Context& context, std::int64_t first, MatrixView<const float> features) {
    STRATA_CHECK(features.cols == config_.feature_width());
    const bool window = features.rows <= model::kWindowRowsMax;
    for (std::int64_t done = 0; done < features.rows;) {
        const std::int64_t rows = std::min(features.rows - done, work_.features.rows);
        const MatrixView<const float> part = features.rows_from(done, rows);
        device_->upload(*queue_, reinterpret_cast<std::byte*>(work_.features.data),
                        std::as_bytes(std::span(part.data, static_cast<std::size_t>(part.size()))));
        run_inject(context, first + done, work_.features.first_rows(rows), window);
        done += rows;
    }
}

void BlockModel::inject_on_device(Context& context, const Rows& rows) {
    STRATA_CHECK(rows.features.cols == config_.feature_width());
    const bool window = rows.features.rows <= model::kWindowRowsMax;
    for (std::int64_t done = 0; done < rows.features.rows;) {
        const std::int64_t now = std::min(rows.features.rows - done, work_.replaced.size);
        run_inject(context, rows.first + done, rows.features.rows_from(done, now), window);
        done += now;
    }
}

void BlockModel::upload_told(const Told& told) {
    constexpr std::size_t kHead = (kPositions * kPositionWords + 1) * sizeof(std::int32_t);
    auto* const to = reinterpret_cast<std::byte*>(work_.positions);
    const auto rule_at = static_cast<std::size_t>(reinterpret_cast<std::byte*>(work_.rule) - to);
    told_.assign(told.draws == nullptr ? kHead : rule_at, std::byte{0});
    std::memcpy(told_.data(), &told.injected, sizeof(told.injected));
    std::memcpy(told_.data() + sizeof(told.injected), &told.block, sizeof(told.block));
    std::memcpy(told_.data() + kHead - sizeof(told.anchor), &told.anchor, sizeof(told.anchor));
    if (told.draws != nullptr) {
        // What lies between is the rest of the block's tokens.
        const auto mask = static_cast<std::int32_t>(config_.mask_token);
        for (std::int64_t i = 1; i < config_.block_size; ++i) {
            const std::size_t at = kHead + static_cast<std::size_t>(i - 1) * sizeof(mask);
            std::memcpy(told_.data() + at, &mask, sizeof(mask));
        }
        const auto rule = std::as_bytes(std::span(&told.draws->rule, 1));
        const auto penalized = std::as_bytes(std::span(told.draws->penalized));
        told_.insert(told_.end(), rule.begin(), rule.end());
        told_.insert(told_.end(), penalized.begin(), penalized.end());
    }
    device_->upload(*queue_, to, told_);
}

void BlockModel::run_inject(Context& context, std::int64_t first, MatrixView<const float> features,
                            bool window) {
    static_cast<void>(features_replaced());  // what is not counted would be written over
    if (!window || !queue_->records()) {
        submit_inject(context, {first}, features, window);
        const auto replaced = download(*device_, *queue_, work_.replaced.data, features.rows);
        uncounted_rows_ = features.rows;
        count_replaced(replaced);
        return;
    }
    upload_told({.injected = first});
    const std::int64_t bound = model::bound_of(first + features.rows, context.options().context);
    key_ = {static_cast<std::int64_t>(model::Recorded::block_inject), number_, features.rows, bound,
            static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(features.data))};
    context.mark(key_);
    const model::Forward::Start start{bound - features.rows, work_.positions};
    queue_->run(key_, [&] { submit_inject(context, start, features, window); });
    uncounted_rows_ = features.rows;
}

void BlockModel::submit_inject(Context& context, model::Forward::Start start,
                               MatrixView<const float> features, bool window) {
    std::vector<op::DflashContextLayer> layers;
    for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
        const op::DflashLayer& layer = weights_.layers[l];
        layers.push_back({layer.key, layer.value, layer.key_norm, context.cells()[l]});
    }
    op::DflashInject op;
    op.features = features;
    op.first = start.first;
    op.first_at = start.first_at;
    op.fuse = weights_.fuse;
    op.norm = weights_.fuse_norm;
    op.layers = {layers.data(), static_cast<std::int64_t>(layers.size())};
    op.inverse_frequency = work_.frequencies.data;
    op.shape = shape();
    op.epsilon = config_.epsilon;
    const bool recorded = start.first_at != nullptr;
    op.replaced = {recorded ? work_.replaced_now.data : work_.replaced.data, features.rows};
    (window ? ops_ : ops_.for_prompts()).dflash_inject(op, *queue_);
}

void BlockModel::count_replaced(std::span<const std::int32_t> replaced) {
    const auto rows = replaced.first(static_cast<std::size_t>(uncounted_rows_));
    features_replaced_ = std::accumulate(rows.begin(), rows.end(), features_replaced_);
    uncounted_rows_ = 0;
}

std::int64_t BlockModel::features_replaced() {
    if (uncounted_rows_ > 0) {
        const auto replaced = download(*device_, *queue_, work_.replaced_now.data, uncounted_rows_);
        count_replaced(replaced);
    }
    return features_replaced_;
}

Status BlockModel::check(const DraftRequest& request) const {
    if (request.anchor < 0 || request.anchor >= config_.vocabulary) {
        return STRATA_ERROR("the anchor ", request.anchor,
                            " is outside the vocabulary, wanted 0 to ", config_.vocabulary - 1);
    }
    if (request.rows < 2 || request.rows > config_.block_size) {
        return STRATA_ERROR("a draft of ", request.rows, " rows was asked for, wanted 2 to ",
                            config_.block_size);
    }
    if (request.draws != nullptr) {
        STRATA_CHECK(request.rows - 1 <= op::kDrawRowsMax);
        STRATA_CHECK(std::ssize(request.draws->penalized) <= op::kPenalizedMax);
    }
    return Ok{};
}

void BlockModel::run_block(Context& context, const DraftRequest& request, const Rows& fresh) {
    const MatrixView<const float>& features = fresh.features;
    const bool drawn = request.draws != nullptr;
    if (!queue_->records()) {
        if (features.rows > 0) inject_on_device(context, fresh);
        upload_told({0, request.position, request.anchor, request.draws});
        submit_block(context, {request.position}, request.rows, drawn);
        return;
    }
    static_cast<void>(features_replaced());
    upload_told({fresh.first, request.position, request.anchor, request.draws});
    const std::int64_t room = context.options().context;
    const std::int64_t bound = model::bound_of(request.position, room);
    const std::int64_t end =
        features.rows == 0 ? 0 : model::bound_of(fresh.first + features.rows, room);
    key_ = {static_cast<std::int64_t>(model::Recorded::block),
            number_,
            request.rows,
            bound,
            drawn ? 1 : 0,
            features.rows,
            end,
            static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(features.data))};
    context.mark(key_);
    queue_->run(key_, [&] {
        if (features.rows > 0) {
            submit_inject(context, {end - features.rows, work_.positions}, features, true);
        }
        submit_block(context, {bound, work_.positions + 1}, request.rows, drawn);
    });
    uncounted_rows_ = features.rows;
}

void BlockModel::submit_block(const Context& context, model::Forward::Start start,
                              std::int64_t rows, bool drawn) {
    std::vector<op::DflashLayer> layers = weights_.layers;
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l].cells = context.cells()[l];
    op::DflashBlock op;
    op.tokens = {work_.tokens.data, rows};
    op.first = start.first;
    op.first_at = start.first_at;
    op.table = weights_.embedding;
    op.layers = {layers.data(), static_cast<std::int64_t>(layers.size())};
    op.norm = weights_.norm;
    op.inverse_frequency = work_.frequencies.data;
    op.shape = shape();
    op.taps = config_.conv_taps;
    op.group = config_.conv_group;
    op.epsilon = config_.epsilon;
    op.hidden = work_.hidden.first_rows(rows);
    ops_.dflash_block(op, *queue_);
    ops_.output_head(
        {work_.hidden.rows_from(1, rows - 1), weights_.head, work_.logits.first_rows(rows - 1)},
        *queue_);
    submit_select(rows - 1, drawn);
}

void BlockModel::submit_select(std::int64_t count, bool drawn) {
    op::DflashSelect op;
    op.hidden = work_.hidden.rows_from(1, count);
    op.logits = work_.logits.first_rows(count);
    op.anchor_at = work_.tokens.data;
    op.token_of_row = weights_.token_of_row;
    if (drawn) {
        op.rule = work_.rule;
        op.penalized = work_.penalized;
    }
    op.projection = weights_.selector;
    op.predecessor = weights_.predecessor;
    op.successor = weights_.successor;
    op.candidates = work_.candidates.first_rows(count);
    op.scores = work_.scores.first_rows(count);
    op.path = {work_.path.data, count};
    op.confidence = {work_.confidence.data, count};
    op.rows = work_.walked;
    ops_.dflash_select(op, *queue_);
}

Guess BlockModel::take(std::int64_t count, bool scores) {
    device_->download(*queue_, std::as_writable_bytes(std::span(results_)),
                      reinterpret_cast<const std::byte*>(work_.results.data));
    count_replaced(results_);
    const auto at = [&](const void* piece) {
        return results_.data() + (static_cast<const std::int32_t*>(piece) - work_.results.data);
    };
    const auto numbers = [&](const float* piece, std::int64_t size) {
        std::vector<float> values(static_cast<std::size_t>(size));
        std::memcpy(values.data(), at(piece), values.size() * sizeof(float));
        return values;
    };
    Guess guess;
    guess.path.assign(at(work_.path.data), at(work_.path.data) + count);
    guess.confidence = numbers(work_.confidence.data, count);
    if (scores) {
        guess.width = config_.candidates;
        const std::int32_t* candidates = at(work_.candidates.data);
        guess.candidates.assign(candidates, candidates + count * guess.width);
        guess.scores = numbers(work_.scores.data, count * guess.width);
    }
    guess.keep(static_cast<std::size_t>(*at(work_.walked)));
    return guess;
}

Result<Guess> BlockModel::draft(Context& context, const DraftRequest& request, const Rows& fresh) {
    STRATA_TRY(check(request));
    STRATA_CHECK(fresh.features.rows == 0 || fresh.features.cols == config_.feature_width());
    const bool together = fresh.features.rows <= model::kWindowRowsMax;
    if (!together) inject_on_device(context, fresh);
    run_block(context, request, together ? fresh : Rows{});
    Guess guess = take(request.rows - 1, request.keep_scores);
    std::size_t kept = 0;
    while (kept < guess.path.size() && guess.confidence[kept] >= request.confidence_min) ++kept;
    guess.keep(kept);
    STRATA_TRY(queue_->status());
    return guess;
}

}  // namespace strata::dflash
