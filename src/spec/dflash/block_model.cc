#include "spec/dflash/block_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "device/carver.h"

namespace strata::dflash {

namespace {

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

// Of the candidate `token`.
float softmax_at(std::span<const std::int32_t> candidates, std::span<const float> scores,
                 std::int32_t token) {
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    double at = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        const double e = std::exp(static_cast<double>(scores[i]) - largest);
        sum += e;
        if (candidates[i] == token) at = e;
    }
    return static_cast<float>(at / sum);
}

// FNV-1a of the start of every tensor: enough of a file to tell trained weights apart.
std::string mark_of(const gguf::File& file) {
    constexpr std::size_t kStart = 1024;
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const gguf::Tensor& tensor : file.tensors()) {
        for (const std::byte b : tensor.data.first(std::min(kStart, tensor.data.size()))) {
            hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
        }
    }
    return {reinterpret_cast<const char*>(&hash), sizeof(hash)};
}

}  // namespace

Result<std::unique_ptr<BlockModel>> BlockModel::load(gguf::File file, const model::Target& target,
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
    model->queue_ = device.make_queue();
    STRATA_ASSIGN(model->weights_, Weights::bind(own, model->config_, device, *model->queue_));
    Weights& weights = model->weights_;
    if (weights.embedding.empty()) weights.embedding = target.weights().embedding;
    if (weights.head.empty()) weights.head = target.weights().head;
    STRATA_TRY(model->prepare(rows_max));
    model->mark_ = mark_of(own);
    return model;
}

Status BlockModel::prepare(std::int64_t rows_max) {
    const std::vector<double> frequencies = inverse_frequencies(config_);
    const std::int64_t guesses = config_.block_size - 1;
    const auto carve = [&](device::Carver& carver) {
        work_.features = carver.matrix<float>(rows_max, config_.feature_width());
        work_.replaced = carver.vector<std::int32_t>(rows_max);
        work_.tokens = carver.vector<std::int32_t>(config_.block_size);
        work_.hidden = carver.matrix<float>(config_.block_size, config_.hidden);
        work_.logits = carver.matrix<float>(guesses, weights_.head.rows);
        work_.candidates = carver.matrix<std::int32_t>(guesses, config_.candidates);
        work_.scores = carver.matrix<float>(guesses, config_.candidates);
        work_.path = carver.vector<std::int32_t>(guesses);
        work_.confidence = carver.vector<float>(guesses);
        work_.walked = carver.vector<std::int32_t>(1);
        work_.frequencies = carver.vector<double>(static_cast<std::int64_t>(frequencies.size()));
    };
    device::Carver measure;
    carve(measure);
    STRATA_ASSIGN(memory_, device_->allocate(measure.used()));
    device::Carver carver(memory_.data());
    carve(carver);
    device_->upload(*queue_, reinterpret_cast<std::byte*>(work_.frequencies.data),
                    std::as_bytes(std::span(frequencies)));
    queue_->wait();
    return Ok{};
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
    std::vector<op::DflashContextLayer> layers;
    for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
        const op::DflashLayer& layer = weights_.layers[l];
        layers.push_back({layer.key, layer.value, layer.key_norm, context.cells()[l]});
    }
    for (std::int64_t done = 0; done < features.rows;) {
        const std::int64_t rows = std::min(features.rows - done, work_.features.rows);
        const MatrixView<const float> part = features.rows_from(done, rows);
        device_->upload(*queue_, reinterpret_cast<std::byte*>(work_.features.data),
                        std::as_bytes(std::span(part.data, static_cast<std::size_t>(part.size()))));
        op::DflashInject op;
        op.features = work_.features.first_rows(rows);
        op.first = first + done;
        op.fuse = weights_.fuse;
        op.norm = weights_.fuse_norm;
        op.layers = {layers.data(), static_cast<std::int64_t>(layers.size())};
        op.inverse_frequency = work_.frequencies.data;
        op.shape = shape();
        op.epsilon = config_.epsilon;
        op.replaced = {work_.replaced.data, rows};
        const bool window = features.rows <= model::kWindowRowsMax;
        (window ? ops_ : ops_.for_prompts()).dflash_inject(op, *queue_);
        const auto replaced = download(*device_, *queue_, work_.replaced.data, rows);
        queue_->wait();
        features_replaced_ = std::accumulate(replaced.begin(), replaced.end(), features_replaced_);
        done += rows;
    }
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
    return Ok{};
}

void BlockModel::run_block(const Context& context, const DraftRequest& request) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(request.rows),
                                     static_cast<std::int32_t>(config_.mask_token));
    tokens[0] = request.anchor;
    device_->upload(*queue_, reinterpret_cast<std::byte*>(work_.tokens.data),
                    std::as_bytes(std::span(tokens)));
    std::vector<op::DflashLayer> layers = weights_.layers;
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l].cells = context.cells()[l];
    op::DflashBlock op;
    op.tokens = {work_.tokens.data, request.rows};
    op.first = request.position;
    op.table = weights_.embedding;
    op.layers = {layers.data(), static_cast<std::int64_t>(layers.size())};
    op.norm = weights_.norm;
    op.inverse_frequency = work_.frequencies.data;
    op.shape = shape();
    op.taps = config_.conv_taps;
    op.group = config_.conv_group;
    op.epsilon = config_.epsilon;
    op.hidden = work_.hidden.first_rows(request.rows);
    ops_.dflash_block(op, *queue_);
}

void BlockModel::run_select(std::int64_t first, std::int64_t count, std::int32_t anchor) {
    op::DflashSelect op;
    op.hidden = work_.hidden.rows_from(1 + first, count);
    op.logits = work_.logits.rows_from(first, count);
    op.anchor = anchor;
    op.token_of_row = weights_.token_of_row;
    op.projection = weights_.selector;
    op.predecessor = weights_.predecessor;
    op.successor = weights_.successor;
    op.candidates = work_.candidates.first_rows(count);
    op.scores = work_.scores.first_rows(count);
    op.path = {work_.path.data, count};
    op.confidence = {work_.confidence.data, count};
    op.rows = work_.walked.data;
    ops_.dflash_select(op, *queue_);
}

Guess BlockModel::take(std::int64_t count) {
    Guess guess;
    guess.width = config_.candidates;
    const auto walked = download(*device_, *queue_, work_.walked.data, 1);
    guess.path = download(*device_, *queue_, work_.path.data, count);
    guess.confidence = download(*device_, *queue_, work_.confidence.data, count);
    guess.candidates = download(*device_, *queue_, work_.candidates.data, count * guess.width);
    guess.scores = download(*device_, *queue_, work_.scores.data, count * guess.width);
    queue_->wait();
    guess.keep(static_cast<std::size_t>(walked[0]));
    return guess;
}

// Row by row, since each row's scores depend on the pick before it.
Guess BlockModel::draw(const DraftRequest& request) {
    Guess all;
    all.width = config_.candidates;
    std::int32_t before = request.anchor;
    for (std::int64_t i = 0; i + 1 < request.rows; ++i) {
        run_select(i, 1, before);
        const Guess row = take(1);
        if (row.path.empty()) break;
        const auto pick = request.pick(row.candidates, row.scores, all.path);
        if (!pick.ok()) break;
        before = *pick;
        all.path.push_back(before);
        all.confidence.push_back(softmax_at(row.candidates, row.scores, before));
        all.candidates.insert(all.candidates.end(), row.candidates.begin(), row.candidates.end());
        all.scores.insert(all.scores.end(), row.scores.begin(), row.scores.end());
    }
    return all;
}

Result<Guess> BlockModel::draft(const Context& context, const DraftRequest& request) {
    STRATA_TRY(check(request));
    run_block(context, request);
    const std::int64_t guesses = request.rows - 1;
    ops_.output_head(
        {work_.hidden.rows_from(1, guesses), weights_.head, work_.logits.first_rows(guesses)},
        *queue_);
    Guess guess;
    if (request.pick) {
        guess = draw(request);
    } else {
        run_select(0, guesses, request.anchor);
        guess = take(guesses);
    }
    std::size_t kept = 0;
    while (kept < guess.path.size() && guess.confidence[kept] >= request.confidence_min) ++kept;
    guess.keep(kept);
    return guess;
}

}  // namespace strata::dflash
