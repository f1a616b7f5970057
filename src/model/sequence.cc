#include "model/sequence.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace strata::model {
namespace {

constexpr char kMagic[8] = {'s', 't', 'r', 'a', 't', 'a', 'S', '1'};

// Tokens that a sequence can hold without another allocation; untouched memory costs nothing.
constexpr std::int64_t kTokensReserved = std::int64_t{1} << 20;

template <typename T>
void append(std::string& out, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

op::CacheRow cached_row(const Config& config, const SequenceOptions& options) {
    return {options.cache, config.kv_heads, config.head_dim};
}

// Of header()'s numbers, from the end: the type of the caches, whether there is an MTP layer, rows.
constexpr std::size_t kTypeFromEnd = 3 * sizeof(std::int64_t);

// That saved bytes begin with the header `wanted`, up to the number of rows.
Status check_header(const std::string& wanted, std::span<const char> saved) {
    constexpr std::string_view kNames[] = {"f16", "f32", "q8_0"};
    const std::size_t size = wanted.size() - sizeof(std::int64_t);
    const std::size_t type_at = wanted.size() - kTypeFromEnd;
    std::string theirs(saved.data(), std::min(size, saved.size()));
    if (saved.size() >= wanted.size() && theirs == wanted.substr(0, size)) return Ok{};
    std::int64_t types[2] = {};  // ours and theirs
    std::memcpy(&types[0], wanted.data() + type_at, sizeof(types[0]));
    if (theirs.size() == size) {
        std::memcpy(&types[1], theirs.data() + type_at, sizeof(types[1]));
        theirs.replace(type_at, sizeof(types[0]), wanted, type_at, sizeof(types[0]));
    }
    if (theirs == wanted.substr(0, size) && types[1] >= 0 && types[1] < std::ssize(kNames)) {
        return STRATA_ERROR("a checkpoint holds keys and values in ",
                            kNames[static_cast<std::size_t>(types[1])], ", wanted ",
                            kNames[static_cast<std::size_t>(types[0])]);
    }
    return STRATA_ERROR("a checkpoint of ", saved.size(),
                        " bytes was not saved by this model with these options");
}

// Null stays null: sizes are asked for before there is memory.
void* offset(void* data, std::size_t bytes) {
    return data == nullptr ? nullptr : static_cast<std::byte*>(data) + bytes;
}

// Of the MTP layer after `rows` rows: the last one waits for its successor.
std::int64_t mtp_cells(std::int64_t rows) { return std::max<std::int64_t>(rows - 1, 0); }

std::int64_t mtp_waiting_max(const Config& config, const SequenceOptions& options) {
    const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * config.stream_width();
    const std::int64_t most = std::max(kMtpWaitingRowsMin, options.context);
    return std::clamp(options.mtp_waiting_bytes / row_bytes, kMtpWaitingRowsMin, most);
}

}  // namespace

void Sequence::lay_out_attention(device::Carver& carver, AttentionLayerState& state) {
    const auto size = static_cast<std::size_t>(cached_row(config_, options_).bytes());
    state.cache.type = options_.cache;
    state.cache.context = options_.context;
    state.cache.keys = carver.take_bytes(options_.context, size);
    state.cache.values = carver.take_bytes(options_.context, size);
    state.cache.block_keys =
        carver.take<float>(options_.context / config_.index_ratio * config_.index_dim);
    const std::int64_t raw = std::int64_t{config_.index_ratio - 1} * config_.index_dim;
    state.raw_now = carver.take<float>(raw);
    state.raw_next = carver.take<float>(raw);
    state.raw_trace = carver.matrix<float>(kWindowRowsMax, config_.index_dim);
}

void Sequence::lay_out(device::Carver& carver) {
    const std::int64_t memory =
        std::int64_t{config_.delta_value_heads} * config_.delta_head_dim * config_.delta_head_dim;
    const std::int64_t history = (config_.delta_kernel - 1) * config_.delta_channels();
    for (DeltaLayerState& state : delta_) {
        state.now = {carver.take<float>(memory), carver.take<float>(history)};
        state.next = {carver.take<float>(memory), carver.take<float>(history)};
        state.trace.projected = carver.matrix<float>(kWindowRowsMax, config_.delta_channels());
        state.trace.convolved = carver.matrix<float>(kWindowRowsMax, config_.delta_channels());
        state.trace.beta = carver.matrix<float>(kWindowRowsMax, config_.delta_value_heads);
        state.trace.decay = carver.matrix<float>(kWindowRowsMax, config_.delta_value_heads);
    }
    for (AttentionLayerState& state : attention_) lay_out_attention(carver, state);
    if (config_.ngram.present()) {
        const std::int64_t values = config_.ngram.history_rows() * config_.stream_width();
        ngram_.now = carver.take<float>(values);
        ngram_.next = carver.take<float>(values);
        ngram_.trace = carver.matrix<float>(kWindowRowsMax, config_.stream_width());
    }
    if (options_.mtp) {
        lay_out_attention(carver, mtp_.attention);
        mtp_.waiting =
            carver.matrix<float>(mtp_waiting_max(config_, options_), config_.stream_width());
        mtp_.draft_raw =
            carver.take<float>(std::int64_t{config_.index_ratio - 1} * config_.index_dim);
    }
}

Sequence Sequence::unallocated(const Config& config, const SequenceOptions& options) {
    Sequence sequence;
    sequence.config_ = config;
    sequence.options_ = options;
    const auto delta = std::count(config.kinds.begin(), config.kinds.end(), LayerKind::delta_net);
    sequence.delta_.resize(static_cast<std::size_t>(delta));
    sequence.attention_.resize(config.kinds.size() - static_cast<std::size_t>(delta));
    return sequence;
}

std::uint64_t Sequence::state_bytes(const Config& config, const SequenceOptions& options) {
    Sequence sequence = unallocated(config, options);
    device::Carver measure;
    sequence.lay_out(measure);
    return measure.used();
}

Result<Sequence> Sequence::create(const Config& config, device::Device& device,
                                  const SequenceOptions& options) {
    if (options.context < 1 || options.context > kContextMax) {
        return STRATA_ERROR("the context is ", options.context, " tokens, wanted 1 to ",
                            kContextMax);
    }
    if (options.mtp && config.mtp_layers == 0) {
        return STRATA_ERROR("the model has no MTP layer, and its guesses were asked for");
    }
    Sequence sequence = unallocated(config, options);
    sequence.device_ = &device;
    auto memory = device.allocate(state_bytes(config, options));
    if (!memory.ok()) {
        return STRATA_ERROR("no room for the state of ", options.context,
                            " tokens: ", memory.error().message);
    }
    sequence.memory_ = std::move(memory).value();
    sequence.tokens_.reserve(static_cast<std::size_t>(std::min(options.context, kTokensReserved)));
    device::Carver carver(sequence.memory_.data());
    sequence.lay_out(carver);
    return sequence;
}

void Sequence::reset(device::Queue& queue) {
    // The regions of an empty sequence are those that are read before they are written.
    visit(0, [&](void* data, std::size_t bytes) {
        device_->clear(queue, static_cast<std::byte*>(data), bytes);
    });
    tokens_.clear();
    pending_.clear();
    mtp_.waiting_rows = 0;
}

void Sequence::visit_cells(const AttentionLayerState& state, std::int64_t first, std::int64_t last,
                           const Region& region) const {
    const auto entry = static_cast<std::size_t>(cached_row(config_, options_).bytes());
    const auto cells = [&](void* data, std::int64_t from, std::int64_t to, std::size_t size) {
        region(offset(data, static_cast<std::size_t>(from) * size),
               static_cast<std::size_t>(to - from) * size);
    };
    cells(state.cache.keys, first, last, entry);
    cells(state.cache.values, first, last, entry);
    cells(state.cache.block_keys, first / config_.index_ratio, last / config_.index_ratio,
          static_cast<std::size_t>(config_.index_dim) * sizeof(float));
}

void Sequence::visit_open(const AttentionLayerState& state, std::int64_t rows,
                          const Region& region) const {
    // Raw rows of blocks that are complete are never read again and may differ between two runs
    // that reached the same state in different steps; those before the start are never read at all.
    const std::size_t row = static_cast<std::size_t>(config_.index_dim) * sizeof(float);
    const auto open = static_cast<std::size_t>(rows % config_.index_ratio);
    const auto all = static_cast<std::size_t>(config_.index_ratio - 1);
    region(offset(state.raw_now, (all - open) * row), open * row);
}

void Sequence::visit_attention(const AttentionLayerState& state, std::int64_t rows,
                               const Region& region) const {
    visit_cells(state, 0, rows, region);
    visit_open(state, rows, region);
}

void Sequence::visit_delta(const Region& region) const {
    const std::size_t memory = static_cast<std::size_t>(config_.delta_value_heads) *
                               config_.delta_head_dim * config_.delta_head_dim * sizeof(float);
    const std::size_t history =
        static_cast<std::size_t>((config_.delta_kernel - 1) * config_.delta_channels()) *
        sizeof(float);
    for (const DeltaLayerState& state : delta_) {
        region(state.now.memory, memory);
        region(state.now.history, history);
    }
}

void Sequence::visit_ngram(const Region& region) const {
    if (!config_.ngram.present()) return;
    region(ngram_.now,
           static_cast<std::size_t>(config_.ngram.history_rows() * config_.stream_width()) *
               sizeof(float));
}

void Sequence::visit_waiting(std::int64_t rows, const Region& region) const {
    if (rows == 0) return;
    region(mtp_.waiting.data, static_cast<std::size_t>(config_.stream_width()) * sizeof(float));
}

void Sequence::visit(std::int64_t rows, const Region& region) const {
    visit_delta(region);
    for (const AttentionLayerState& state : attention_) visit_attention(state, rows, region);
    visit_ngram(region);
    if (options_.mtp) {
        visit_attention(mtp_.attention, mtp_cells(rows), region);
        visit_waiting(rows, region);
    }
}

void Sequence::visit_moment(std::int64_t rows, const Region& region) const {
    visit_delta(region);
    for (const AttentionLayerState& state : attention_) visit_open(state, rows, region);
    visit_ngram(region);
    if (options_.mtp) {
        visit_open(mtp_.attention, mtp_cells(rows), region);
        visit_waiting(rows, region);
    }
}

void Sequence::visit_rows(std::int64_t first, std::int64_t last, const Region& region) const {
    for (const AttentionLayerState& state : attention_) visit_cells(state, first, last, region);
    if (options_.mtp) visit_cells(mtp_.attention, mtp_cells(first), mtp_cells(last), region);
}

// What two sequences must share for one to take the other's state. Widths that shape the regions; a
// different model of the same shape is the caller's to tell apart.
std::string Sequence::header(std::int64_t rows) const {
    std::string out(kMagic, sizeof(kMagic));
    const std::int64_t numbers[] = {config_.layers,
                                    config_.hidden,
                                    config_.streams,
                                    config_.vocabulary,
                                    config_.delta_key_heads,
                                    config_.delta_value_heads,
                                    config_.delta_head_dim,
                                    config_.delta_kernel,
                                    config_.kv_heads,
                                    config_.head_dim,
                                    config_.index_dim,
                                    config_.index_ratio,
                                    config_.ngram.layer,
                                    config_.ngram.history_rows(),
                                    static_cast<std::int64_t>(attention_.size()),
                                    static_cast<std::int64_t>(options_.cache),
                                    options_.mtp ? 1 : 0,
                                    rows};
    for (const std::int64_t n : numbers) append(out, n);
    return out;
}

std::string Sequence::save(device::Queue& queue) const {
    STRATA_CHECK(!stepping() && mtp_.waiting_rows <= 1);
    std::string out = header(length());
    out.append(reinterpret_cast<const char*>(tokens_.data()),
               tokens_.size() * sizeof(std::int32_t));
    visit(length(), [&](void* data, std::size_t bytes) {
        const std::size_t at = out.size();
        out.resize(at + bytes);
        device_->download(queue, std::as_writable_bytes(std::span(out).subspan(at)),
                          static_cast<const std::byte*>(data));
    });
    return out;
}

Status Sequence::restore(device::Queue& queue, std::span<const char> saved) {
    STRATA_CHECK(!stepping());
    const std::string wanted = header(0);
    STRATA_TRY(check_header(wanted, saved));
    std::int64_t rows = 0;
    std::memcpy(&rows, saved.data() + wanted.size() - sizeof(rows), sizeof(rows));
    if (rows < 0 || rows > options_.context) {
        return STRATA_ERROR("a checkpoint holds ", rows, " tokens, wanted at most the context of ",
                            options_.context);
    }
    std::size_t bytes = wanted.size() + static_cast<std::size_t>(rows) * sizeof(std::int32_t);
    visit(rows, [&](void*, std::size_t region) { bytes += region; });
    if (saved.size() != bytes) {
        return STRATA_ERROR("a checkpoint of ", rows, " tokens has ", saved.size(),
                            " bytes, wanted ", bytes);
    }
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    if (rows > 0) {  // else there is no memory to copy to, which memcpy wants even for no bytes
        std::memcpy(tokens.data(), saved.data() + wanted.size(),
                    tokens.size() * sizeof(std::int32_t));
    }
    for (const std::int32_t token : tokens) {
        if (token < 0 || token >= config_.vocabulary) {
            return STRATA_ERROR("a checkpoint holds token ", token,
                                ", wanted one below the vocabulary of ", config_.vocabulary);
        }
    }
    reset(queue);
    tokens_ = std::move(tokens);
    std::size_t at = wanted.size() + tokens_.size() * sizeof(std::int32_t);
    visit(rows, [&](void* data, std::size_t region) {
        device_->upload(queue, static_cast<std::byte*>(data),
                        std::as_bytes(saved.subspan(at, region)));
        at += region;
    });
    mtp_.waiting_rows = options_.mtp && rows > 0 ? 1 : 0;
    return Ok{};
}

namespace {

void add_address(std::vector<std::int64_t>& key, const void* address) {
    key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address)));
}

}  // namespace

void Sequence::mark(std::vector<std::int64_t>& key) const {
    add_address(key, memory_.data());
    key.push_back(options_.context);
    key.push_back(static_cast<std::int64_t>(options_.cache));
}

// Every layer's states are swapped together, but for the MTP layer's.
void Sequence::mark_trunk(std::vector<std::int64_t>& key) const {
    mark(key);
    add_address(key, delta_.empty() ? nullptr : delta_.front().now.memory);
    add_address(key, attention_.empty() ? nullptr : attention_.front().raw_now);
}

void Sequence::mark_mtp(std::vector<std::int64_t>& key) const {
    mark(key);
    add_address(key, mtp_.attention.raw_now);
}

void Sequence::replay(const op::KeptRows& kept, const op::Table& ops, device::Queue& queue) {
    const op::DeltaShape shape{config_.delta_key_heads, config_.delta_value_heads,
                               config_.delta_head_dim, config_.delta_head_dim,
                               config_.delta_kernel};
    replayed_.clear();
    for (const DeltaLayerState& state : delta_) {
        replayed_.push_back({state.trace.first_rows(kept.rows), state.now, state.next});
    }
    ops.delta_replay({replayed_, kept, shape, op::HeadOrder::tiled}, queue);
    shifted_.clear();
    const auto add = [&](const float* from, float* to, MatrixView<float> trace, std::int64_t rows) {
        shifted_.push_back({from, {to, rows, trace.cols}, trace.first_rows(kept.rows)});
    };
    for (const AttentionLayerState& state : attention_) {
        add(state.raw_now, state.raw_next, state.raw_trace, config_.index_ratio - 1);
    }
    if (config_.ngram.present()) {
        add(ngram_.now, ngram_.next, ngram_.trace, config_.ngram.history_rows());
    }
    ops.shift_history({shifted_, kept}, queue);
}

void Sequence::swap_states() {
    for (DeltaLayerState& state : delta_) std::swap(state.now, state.next);
    for (AttentionLayerState& state : attention_) std::swap(state.raw_now, state.raw_next);
    std::swap(ngram_.now, ngram_.next);
}

void Sequence::check_kept(std::int64_t rows) const {
    const auto stepped = static_cast<std::int64_t>(pending_.size());
    STRATA_CHECK(rows >= 0 && rows <= stepped);
    STRATA_CHECK(rows == stepped || rows == 0 || pending_traced_);
}

void Sequence::keep(std::int64_t rows) {
    check_kept(rows);
    if (rows > 0) swap_states();
    tokens_.insert(tokens_.end(), pending_.begin(), pending_.begin() + rows);
    pending_.clear();
}

}  // namespace strata::model
