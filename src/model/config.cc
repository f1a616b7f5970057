#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "model/tensors.h"

namespace strata::model {
namespace {

constexpr std::string_view kArchitecture = "qwen4exp";

// As files without attention.compress_ratios are read: every row is selected.
constexpr int kDenseBudget = 1 << 30;

// Reads keys of the architecture's own prefix, each within [low, high].
class Keys {
  public:
    explicit Keys(const gguf::File& file) : file_(file) {}

    static std::string full(std::string_view key) { return concat(kArchitecture, '.', key); }
    const gguf::Value* find(std::string_view key) const { return file_.find(full(key)); }

    template <typename T>
    Status read(std::string_view key, std::uint64_t low, std::uint64_t high, T& out) const {
        STRATA_ASSIGN(const std::uint64_t value, gguf::require_uint(file_, full(key)));
        if (value < low || value > high) {
            return STRATA_ERROR(quote(file_.path()), ": ", full(key), " is ", value, ", wanted ",
                                low, " to ", high);
        }
        out = static_cast<T>(value);
        return Ok{};
    }

    template <typename T>
    Status read_or(std::string_view key, std::uint64_t low, std::uint64_t high, T fallback,
                   T& out) const {
        out = fallback;
        return find(key) == nullptr ? Status(Ok{}) : read(key, low, high, out);
    }

    Result<std::vector<std::uint64_t>> uints(std::string_view key, std::size_t count) const {
        STRATA_ASSIGN(std::vector<std::uint64_t> values, gguf::require_uints(file_, full(key)));
        if (values.size() != count) {
            return STRATA_ERROR(quote(file_.path()), ": ", full(key), " has ", values.size(),
                                " entries, wanted ", count);
        }
        return values;
    }

    const gguf::File& file() const { return file_; }

  private:
    const gguf::File& file_;
};

// A key that is one number for the model or a list with one equal number a block.
Status read_uniform(const Keys& keys, std::string_view key, std::uint64_t high, std::int64_t& out) {
    const gguf::Value* value = keys.find(key);
    if (value == nullptr || value->type() != gguf::ValueType::array) {
        return keys.read(key, 1, high, out);
    }
    STRATA_ASSIGN(const auto list, gguf::require_uints(keys.file(), Keys::full(key)));
    if (list.empty() || list[0] < 1 || list[0] > high ||
        std::any_of(list.begin(), list.end(), [&](auto v) { return v != list[0]; })) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full(key),
                            " is a list of different or impossible numbers, wanted one number from "
                            "1 to ",
                            high, " for all blocks");
    }
    out = static_cast<std::int64_t>(list[0]);
    return Ok{};
}

Result<std::vector<bool>> recurrent_flags(const Keys& keys, std::size_t blocks) {
    const std::string key = Keys::full("attention.recurrent_layers");
    const gguf::Value& value = *keys.file().find(key);
    std::vector<bool> flags;
    if (const auto bools = value.as_bools()) {
        flags = *bools;
    } else if (const auto ints = value.as_ints()) {
        for (const std::int64_t v : *ints) flags.push_back(v != 0);
    }
    if (flags.size() < blocks) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", key, " is ", value.type_text(), " of ",
                            value.count(), ", wanted a flag for each of ", blocks, " layers");
    }
    return flags;
}

Status read_kinds(const Keys& keys, Config& config) {
    const auto layers = static_cast<std::size_t>(config.layers);
    config.kinds.assign(layers, LayerKind::delta_net);
    if (keys.find("attention.recurrent_layers") != nullptr) {
        STRATA_ASSIGN(const auto recurrent, recurrent_flags(keys, layers));
        for (std::size_t i = 0; i < layers; ++i) {
            if (!recurrent[i]) config.kinds[i] = LayerKind::sparse_attention;
        }
        return Ok{};
    }
    std::size_t interval = 4;
    STRATA_TRY(keys.read_or("full_attention_interval", 1, kLayersMax, interval, interval));
    for (std::size_t i = interval - 1; i < layers; i += interval) {
        config.kinds[i] = LayerKind::sparse_attention;
    }
    return Ok{};
}

// The ratio stands once a block: the same number on attention layers, anything elsewhere (llama.cpp
// writes 0 for the MTP block, which runs the same attention here).
Status read_index(const Keys& keys, Config& config) {
    STRATA_TRY(keys.read("attention.indexer.head_count", 1, kWidthMax, config.index_heads));
    STRATA_TRY(keys.read("attention.indexer.key_length", 1, kWidthMax, config.index_dim));
    STRATA_TRY(keys.read("attention.indexer.top_k", 1, kDenseBudget, config.index_budget));
    config.index_ratio = 4;
    const std::string key = Keys::full("attention.compress_ratios");
    if (keys.file().find(key) == nullptr) {
        config.index_budget = kDenseBudget;
        return Ok{};
    }
    STRATA_ASSIGN(const auto ratios, gguf::require_uints(keys.file(), key));
    std::optional<std::uint64_t> ratio;
    for (std::size_t i = 0; i < config.kinds.size(); ++i) {
        if (config.kinds[i] != LayerKind::sparse_attention) continue;
        const std::uint64_t here = i < ratios.size() ? ratios[i] : 0;
        if (!ratio) ratio = here;
        if (here != *ratio || here > kWidthMax) {
            return STRATA_ERROR(quote(keys.file().path()), ": ", key, " gives layer ", i,
                                " the ratio ", here, ", wanted one ratio from 0 to ", kWidthMax,
                                " for all attention layers");
        }
    }
    // llama.cpp's converter writes 0 for layers whose kind it knows by another name, and its engine
    // then runs them dense.
    if (ratio == 0) config.index_budget = kDenseBudget;
    if (ratio && *ratio != 0) config.index_ratio = static_cast<int>(*ratio);
    return Ok{};
}

Status read_ngram(const Keys& keys, Config& config) {
    NgramConfig& ngram = config.ngram;
    if (keys.find("ple.layers") == nullptr) return Ok{};
    STRATA_ASSIGN(const auto layers, gguf::require_uints(keys.file(), Keys::full("ple.layers")));
    if (layers.empty()) return Ok{};
    if (layers.size() != 1 || layers[0] >= static_cast<std::uint64_t>(config.layers)) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full("ple.layers"), " lists ",
                            layers.size(), " layers, the first ", layers[0],
                            "; wanted one layer below ", config.layers);
    }
    ngram.layer = static_cast<std::int64_t>(layers[0]);
    STRATA_TRY(keys.read("ple.ngram_size", 2, kNgramSizeMax, ngram.size));
    STRATA_TRY(keys.read("ple.heads_per_ngram", 1, kNgramHeadsMax, ngram.heads_per_ngram));
    STRATA_TRY(keys.read("ple.conv_kernel", 1, kKernelMax, ngram.kernel));
    STRATA_TRY(keys.read("ple.eos_token_id", 0, kWidthMax, ngram.end_token));
    STRATA_TRY(keys.read("embedding_length_per_layer_input", 1, kWidthMax, ngram.row_width));
    const auto size = static_cast<std::size_t>(ngram.size);
    const auto heads = static_cast<std::size_t>(ngram.heads());
    STRATA_ASSIGN(ngram.multipliers, keys.uints("ple.layer_multipliers", size));
    STRATA_ASSIGN(ngram.offsets, keys.uints("ple.head_offsets", heads));
    STRATA_ASSIGN(ngram.vocabulary, keys.uints("ple.head_vocab_sizes", heads));
    return Ok{};
}

Status refuse_rope_scaling(const Keys& keys) {
    if (keys.find("rope.scaling.type") == nullptr) return Ok{};
    STRATA_ASSIGN(const std::string_view type,
                  gguf::require_string(keys.file(), Keys::full("rope.scaling.type")));
    if (type == "none") return Ok{};
    return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full("rope.scaling.type"), " is ",
                        quote(type), ", wanted 'none'");
}

Status read_attention(const Keys& keys, Config& config) {
    STRATA_TRY(keys.read("attention.head_count", 1, kWidthMax, config.heads));
    std::int64_t kv_heads = 0;
    STRATA_TRY(read_uniform(keys, "attention.head_count_kv", kWidthMax, kv_heads));
    config.kv_heads = static_cast<int>(kv_heads);
    STRATA_TRY(keys.read("attention.key_length", 1, kWidthMax, config.head_dim));
    int value_length = 0;
    STRATA_TRY(keys.read_or("attention.value_length", 1, kWidthMax, config.head_dim, value_length));
    if (value_length != config.head_dim) {
        return STRATA_ERROR(quote(keys.file().path()), ": heads have keys of ", config.head_dim,
                            " and values of ", value_length, " values, wanted equal widths");
    }
    STRATA_TRY(keys.read("rope.dimension_count", 2, kWidthMax, config.rotary_dim));
    STRATA_ASSIGN(config.rope_base, gguf::require_float(keys.file(), Keys::full("rope.freq_base")));
    STRATA_TRY(refuse_rope_scaling(keys));
    if (keys.find("rope.dimension_sections") != nullptr) {
        STRATA_ASSIGN(const auto sections,
                      gguf::require_ints(keys.file(), Keys::full("rope.dimension_sections")));
        for (const std::int64_t s : sections) {
            config.rope_sections.push_back(static_cast<std::int32_t>(s));
        }
    }
    return read_index(keys, config);
}

Status read_delta_net(const Keys& keys, Config& config) {
    STRATA_TRY(keys.read("ssm.conv_kernel", 2, kKernelMax, config.delta_kernel));
    STRATA_TRY(keys.read("ssm.state_size", 1, kWidthMax, config.delta_head_dim));
    STRATA_TRY(keys.read("ssm.group_count", 1, kWidthMax, config.delta_key_heads));
    STRATA_TRY(keys.read("ssm.time_step_rank", 1, kWidthMax, config.delta_value_heads));
    std::int64_t inner = 0;
    STRATA_TRY(keys.read("ssm.inner_size", 1, kWidthMax, inner));
    if (inner != config.delta_value_width()) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full("ssm.inner_size"), " is ",
                            inner, ", wanted ", config.delta_value_heads, " heads of ",
                            config.delta_head_dim, " = ", config.delta_value_width());
    }
    return Ok{};
}

Status read_experts(const Keys& keys, Config& config) {
    STRATA_TRY(keys.read("expert_count", 1, kExpertsMax, config.experts));
    STRATA_TRY(keys.read("expert_used_count", 1, kExpertsActiveMax, config.experts_active));
    STRATA_TRY(read_uniform(keys, "expert_feed_forward_length", kWidthMax, config.expert_hidden));
    STRATA_TRY(keys.read("expert_shared_feed_forward_length", 1, kWidthMax, config.shared_hidden));
    STRATA_ASSIGN(config.renormalize_experts,
                  gguf::bool_or(keys.file(), Keys::full("expert_weights_norm"), true));
    return Ok{};
}

Status read_blocks(const Keys& keys, Config& config) {
    std::int64_t blocks = 0;
    STRATA_TRY(keys.read("block_count", 1, kLayersMax, blocks));
    STRATA_TRY(
        keys.read_or("nextn_predict_layers", 0, kLayersMax, std::int64_t{0}, config.mtp_layers));
    if (config.mtp_layers > 1 || config.mtp_layers >= blocks) {
        return STRATA_ERROR(quote(keys.file().path()), " has ", blocks, " blocks, ",
                            config.mtp_layers,
                            " of them MTP layers, wanted at most one MTP layer "
                            "after at least one other");
    }
    config.layers = blocks - config.mtp_layers;
    return read_kinds(keys, config);
}

Status check_ngram(const Config& config) {
    const NgramConfig& ngram = config.ngram;
    if (!ngram.present()) return Ok{};
    constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 40;
    for (std::size_t h = 0; h < ngram.vocabulary.size(); ++h) {
        if (ngram.vocabulary[h] < 1 || ngram.vocabulary[h] > kRowsMax ||
            ngram.offsets[h] > kRowsMax) {
            return STRATA_ERROR("n-gram head ", h, " has ", ngram.vocabulary[h], " rows from row ",
                                ngram.offsets[h], ", wanted 1 to ", kRowsMax);
        }
    }
    const std::uint64_t product_max = std::numeric_limits<std::int64_t>::max();
    for (const std::uint64_t m : ngram.multipliers) {
        if (m == 0 || m > product_max / static_cast<std::uint64_t>(config.vocabulary)) {
            return STRATA_ERROR("an n-gram multiplier is ", m,
                                ", wanted 1 to 2^63 divided by the "
                                "vocabulary of ",
                                config.vocabulary);
        }
    }
    if (ngram.end_token >= config.vocabulary) {
        return STRATA_ERROR("the n-gram end token is ", ngram.end_token,
                            ", wanted a token below the vocabulary of ", config.vocabulary);
    }
    return Ok{};
}

}  // namespace

Status validate(const Config& config) {
    // With these, sizes of a state or a row of work stay far inside 64 bits.
    const std::pair<const char*, std::int64_t> widths[] = {
        {"streams", config.stream_width()},
        {"delta net channels", config.delta_channels()},
        {"delta net memories",
         std::int64_t{config.delta_value_heads} * config.delta_head_dim * config.delta_head_dim},
        {"queries", 2 * config.query_width()},
        {"keys", config.kv_width()},
        {"index queries", std::int64_t{config.index_heads} * config.index_dim},
        {"n-gram rows of a token", config.ngram.heads() * config.ngram.row_width}};
    for (const auto& [what, width] : widths) {
        if (width > kWidthMax) {
            return STRATA_ERROR("the ", what, " are ", width, " values wide, wanted at most ",
                                kWidthMax);
        }
    }
    if (config.streams < 2) {
        return STRATA_ERROR("there are ", config.streams, " residual streams, wanted at least 2");
    }
    if (config.delta_value_heads % config.delta_key_heads != 0) {
        return STRATA_ERROR("delta nets have ", config.delta_value_heads, " value heads and ",
                            config.delta_key_heads, " key heads, wanted a multiple");
    }
    if (config.heads % config.kv_heads != 0) {
        return STRATA_ERROR("attention has ", config.heads, " heads and ", config.kv_heads,
                            " key-value heads, wanted a multiple");
    }
    if (config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim ||
        config.rotary_dim > config.index_dim) {
        return STRATA_ERROR("the rotary width is ", config.rotary_dim,
                            ", wanted an even number up to the head width ", config.head_dim,
                            " and the index width ", config.index_dim);
    }
    if (!(config.rope_base > 0) || !std::isfinite(config.rope_base)) {
        return STRATA_ERROR("the rope base is ", config.rope_base, ", wanted a positive number");
    }
    if (!(config.epsilon > 0) || !(config.epsilon < 1)) {
        return STRATA_ERROR("the norm epsilon is ", config.epsilon, ", wanted between 0 and 1");
    }
    if (config.index_budget % config.index_ratio != 0) {
        return STRATA_ERROR("the index keeps ", config.index_budget, " rows in blocks of ",
                            config.index_ratio, ", wanted a multiple");
    }
    if (config.experts_active > config.experts) {
        return STRATA_ERROR(config.experts_active, " of ", config.experts,
                            " experts are active, wanted at most all");
    }
    return check_ngram(config);
}

namespace {

// Whether all that there is belongs to the block after the model's layers.
bool holds_mtp_alone(const gguf::File& file, std::int64_t layers) {
    const std::string block = block_name(layers, "");
    return !file.tensors().empty() && std::ranges::all_of(file.tensors(), [&](const auto& tensor) {
        return tensor.name.starts_with(block);
    });
}

Status read_vocabulary(const gguf::File& file, std::int64_t stand_in, Config& config) {
    constexpr std::string_view kEmbedding = "token_embd.weight";
    config.vocabulary = stand_in;
    if (file.find_tensor(kEmbedding) == nullptr) {
        if (stand_in > 0) return Ok{};
        if (holds_mtp_alone(file, config.layers)) {
            return STRATA_ERROR(quote(file.path()),
                                " holds an MTP layer alone (a file for --mtp), wanted a model");
        }
    }
    STRATA_ASSIGN(const gguf::Tensor* embedding, gguf::require_tensor(file, kEmbedding));
    if (embedding->shape.size() != 2 || embedding->shape[1] > kWidthMax) {
        return STRATA_ERROR(quote(file.path()), ": tensor 'token_embd.weight' has ",
                            embedding->shape.size(), " dimensions and ", embedding->dimension(1),
                            " rows, wanted 2 dimensions and at most ", kWidthMax, " rows");
    }
    config.vocabulary = static_cast<std::int64_t>(embedding->shape[1]);
    return Ok{};
}

// Each number on its own is in range.
Result<Config> read_config(const gguf::File& file, std::int64_t vocabulary) {
    STRATA_ASSIGN(const auto architecture, gguf::require_string(file, "general.architecture"));
    if (architecture != kArchitecture) {
        return STRATA_ERROR(quote(file.path()), " holds a model of architecture ",
                            quote(architecture), ", wanted '", kArchitecture, "'");
    }
    const Keys keys(file);
    Config config;
    STRATA_TRY(read_blocks(keys, config));
    STRATA_TRY(keys.read("embedding_length", 1, kWidthMax, config.hidden));
    STRATA_TRY(keys.read("context_length", 1, kContextMax, config.context));
    STRATA_ASSIGN(const double epsilon,
                  gguf::require_float(file, Keys::full("attention.layer_norm_rms_epsilon")));
    config.epsilon = static_cast<float>(epsilon);
    STRATA_TRY(keys.read("hyper_connection.count", 2, kStreamsMax, config.streams));
    STRATA_TRY(keys.read("hyper_connection.low_rank", 1, kWidthMax, config.stream_rank));
    STRATA_TRY(read_vocabulary(file, vocabulary, config));
    STRATA_TRY(read_delta_net(keys, config));
    STRATA_TRY(read_attention(keys, config));
    STRATA_TRY(read_experts(keys, config));
    STRATA_TRY(read_ngram(keys, config));
    return config;
}

}  // namespace

Result<Config> config_from_gguf(const gguf::File& file, std::int64_t vocabulary) {
    STRATA_ASSIGN(Config config, read_config(file, vocabulary));
    if (Status status = validate(config); !status.ok()) {
        return STRATA_ERROR(quote(file.path()), ": ", status.error().message);
    }
    return config;
}

Result<Config> mtp_layer_from_gguf(const gguf::File& file, const Config& target) {
    STRATA_ASSIGN(Config layer, read_config(file, target.vocabulary));
    layer.ngram = {};
    Status status = check_mtp_layer(layer, target);
    if (status.ok()) status = validate(layer);
    if (!status.ok()) return STRATA_ERROR(quote(file.path()), ": ", status.error().message);
    return layer;
}

Status check_mtp_layer(const Config& layer, const Config& target) {
    const std::tuple<const char*, std::int64_t, std::int64_t> numbers[] = {
        {"width", layer.hidden, target.hidden},
        {"vocabulary", layer.vocabulary, target.vocabulary},
        {"number of layers before it", layer.layers, target.layers},
        {"number of residual streams", layer.streams, target.streams},
        {"streams' rank", layer.stream_rank, target.stream_rank},
        {"number of heads", layer.heads, target.heads},
        {"number of key-value heads", layer.kv_heads, target.kv_heads},
        {"head size", layer.head_dim, target.head_dim},
        {"rotary width", layer.rotary_dim, target.rotary_dim},
        {"number of index heads", layer.index_heads, target.index_heads},
        {"index width", layer.index_dim, target.index_dim},
        {"index budget", layer.index_budget, target.index_budget},
        {"index ratio", layer.index_ratio, target.index_ratio},
        {"number of experts", layer.experts, target.experts},
        {"number of active experts", layer.experts_active, target.experts_active},
        {"experts' width", layer.expert_hidden, target.expert_hidden},
        {"shared expert's width", layer.shared_hidden, target.shared_hidden}};
    for (const auto& [what, found, wanted] : numbers) {
        if (found == wanted) continue;
        return STRATA_ERROR("the MTP layer's ", what, " is ", found, ", wanted the model's ",
                            wanted);
    }
    if (layer.mtp_layers == 1) return Ok{};
    return STRATA_ERROR("the file has ", layer.mtp_layers, " MTP layers, wanted 1");
}

}  // namespace strata::model
