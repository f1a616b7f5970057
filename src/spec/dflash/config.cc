#include "spec/dflash/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/text.h"
#include "model/limits.h"

namespace strata::dflash {
namespace {

constexpr std::string_view kArchitecture = "dflash";

using model::kContextMax;
using model::kKernelMax;
using model::kLayersMax;
using model::kWidthMax;

// Reads keys of the architecture's own prefix.
class Keys {
  public:
    explicit Keys(const gguf::File& file) : file_(file) {}

    const gguf::File& file() const { return file_; }
    static std::string full(std::string_view key) { return concat(kArchitecture, '.', key); }
    bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }

    template <typename T>
    Status read(std::string_view key, std::uint64_t high, T& out) const {
        STRATA_ASSIGN(const std::uint64_t value, gguf::require_uint(file_, full(key)));
        if (value < 1 || value > high) {
            return STRATA_ERROR(quote(file_.path()), ": ", full(key), " is ", value,
                                ", wanted 1 to ", high);
        }
        out = static_cast<T>(value);
        return Ok{};
    }
    template <typename T>
    Status read_or(std::string_view key, std::uint64_t high, T fallback, T& out) const {
        out = fallback;
        return has(key) ? read(key, high, out) : Status(Ok{});
    }

  private:
    const gguf::File& file_;
};

// A file of the same architecture without the selector is an older kind of draft.
Status check_kind(const Keys& keys) {
    const gguf::File& file = keys.file();
    STRATA_ASSIGN(const auto architecture, gguf::require_string(file, "general.architecture"));
    if (architecture != kArchitecture) {
        return STRATA_ERROR(quote(file.path()), " holds a model of architecture ",
                            quote(architecture), ", wanted a draft of architecture '",
                            kArchitecture, "'");
    }
    if (!keys.has("selector_top_k")) {
        return STRATA_ERROR(quote(file.path()), ": metadata key '", Keys::full("selector_top_k"),
                            "' is missing: the draft is of another kind, wanted DFlash2 with its "
                            "candidate selector");
    }
    STRATA_ASSIGN(const bool causal, gguf::bool_or(file, Keys::full("attention.causal"), false));
    if (causal) {
        return STRATA_ERROR(quote(file.path()), ": ", Keys::full("attention.causal"),
                            " is true, wanted false: the rows of a block see each other");
    }
    return Ok{};
}

// Scales of values that this version leaves as they are.
Status check_scales(const Keys& keys) {
    constexpr std::pair<std::string_view, double> kScales[] = {{"input_embedding_scale", 1},
                                                               {"embedding_scale", 1},
                                                               {"output_multiplier", 1},
                                                               {"logit_scale", 1},
                                                               {"final_logit_softcapping", 0}};
    for (const auto& [key, neutral] : kScales) {
        STRATA_ASSIGN(const double value, gguf::float_or(keys.file(), Keys::full(key), neutral));
        if (value != neutral) {
            return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full(key), " is ",
                                shortest(value), ", wanted ", neutral,
                                ", the only one that is computed");
        }
    }
    const gguf::Value* scaling = keys.file().find(Keys::full("rope.scaling.type"));
    const auto type = scaling == nullptr ? std::nullopt : scaling->as_string();
    if (scaling != nullptr && (!type || *type != "none")) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full("rope.scaling.type"),
                            " is ", type ? quote(*type) : std::string("no string"),
                            ", wanted 'none' or nothing");
    }
    return Ok{};
}

// Of a target whose positions have several parts a draft turns all of its width by the first: that
// is what the sections of its file have to say, if anything.
Status check_rope_sections(const Keys& keys, const Config& config) {
    const std::string name = Keys::full("rope.dimension_sections");
    if (keys.file().find(name) == nullptr) return Ok{};
    STRATA_ASSIGN(const auto sections, gguf::require_ints(keys.file(), name));
    for (std::size_t i = 0; i < std::max<std::size_t>(sections.size(), 1); ++i) {
        const std::int64_t wanted = i == 0 ? config.rotary_dim / 2 : 0;
        const std::int64_t found = i < sections.size() ? sections[i] : 0;
        if (found == wanted) continue;
        return STRATA_ERROR(quote(keys.file().path()), ": ", name, " has ", found, " as number ",
                            i + 1, ", wanted ", wanted, ": half the rotary width, then zeros");
    }
    return Ok{};
}

Status read_attention(const Keys& keys, Config& config) {
    STRATA_TRY(keys.read("attention.head_count", kWidthMax, config.heads));
    STRATA_TRY(keys.read("attention.head_count_kv", kWidthMax, config.kv_heads));
    STRATA_TRY(keys.read("attention.key_length", kWidthMax, config.head_dim));
    int value_length = 0;
    STRATA_TRY(keys.read_or("attention.value_length", kWidthMax, config.head_dim, value_length));
    if (value_length != config.head_dim) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full("attention.value_length"),
                            " is ", value_length, ", wanted the key length of ", config.head_dim);
    }
    STRATA_TRY(keys.read_or("rope.dimension_count", kWidthMax, config.head_dim, config.rotary_dim));
    STRATA_TRY(check_rope_sections(keys, config));
    STRATA_ASSIGN(config.rope_base, gguf::require_float(keys.file(), Keys::full("rope.freq_base")));
    STRATA_ASSIGN(const double epsilon,
                  gguf::require_float(keys.file(), Keys::full("attention.layer_norm_rms_epsilon")));
    config.epsilon = static_cast<float>(epsilon);
    return Ok{};
}

Status read_window(const Keys& keys, Config& config) {
    STRATA_TRY(
        keys.read_or("attention.sliding_window", kContextMax, std::int64_t{0}, config.window));
    const auto layers = static_cast<std::size_t>(config.layers);
    config.slides.assign(layers, config.window > 0 ? 1 : 0);
    const std::string name = Keys::full("attention.sliding_window_pattern");
    const gguf::Value* pattern = keys.file().find(name);
    if (pattern == nullptr || config.window == 0) return Ok{};
    const auto sliding = pattern->as_bools();
    if (!sliding || sliding->size() != layers) {
        const std::string found = sliding ? concat("has ", sliding->size(), " entries")
                                          : concat("is of type ", pattern->type_text());
        return STRATA_ERROR(quote(keys.file().path()), ": ", name, ' ', found,
                            ", wanted an array of ", layers, " bools, one a layer");
    }
    for (std::size_t i = 0; i < layers; ++i) config.slides[i] = (*sliding)[i] ? 1 : 0;
    return Ok{};
}

Status read_target_layers(const Keys& keys, Config& config) {
    const std::string name = Keys::full("target_layers");
    STRATA_ASSIGN(const auto boundaries, gguf::require_ints(keys.file(), name));
    if (boundaries.empty() || boundaries.size() > static_cast<std::size_t>(kTargetLayersMax)) {
        return STRATA_ERROR(quote(keys.file().path()), ": ", name, " has ", boundaries.size(),
                            " entries, wanted 1 to ", kTargetLayersMax);
    }
    for (const std::int64_t boundary : boundaries) {
        if (boundary < 1 || boundary > kLayersMax) {
            return STRATA_ERROR(quote(keys.file().path()), ": ", name, " holds ", boundary,
                                ", wanted 1 to ", kLayersMax);
        }
        config.target_layers.push_back(boundary - 1);
    }
    return Ok{};
}

Status read_block(const Keys& keys, Config& config) {
    STRATA_TRY(keys.read("block_size", kBlockMax, config.block_size));
    STRATA_TRY(keys.read("conv_kernel_size", kKernelMax, config.conv_taps));
    STRATA_TRY(keys.read("conv_group_size", kWidthMax, config.conv_group));
    STRATA_TRY(keys.read("selector_rank", kWidthMax, config.selector_rank));
    STRATA_TRY(keys.read("selector_top_k", kCandidatesMax, config.candidates));
    STRATA_ASSIGN(const std::uint64_t mask,
                  gguf::require_uint(keys.file(), "tokenizer.ggml.mask_token_id"));
    if (mask >= kWidthMax) {
        return STRATA_ERROR(quote(keys.file().path()), ": tokenizer.ggml.mask_token_id is ", mask,
                            ", wanted below ", kWidthMax);
    }
    config.mask_token = static_cast<std::int64_t>(mask);
    return Ok{};
}

// What the file says beside its codebooks, if anything, is the same.
Status check_vocabulary(const Keys& keys, const Config& config) {
    std::int64_t said = 0;
    STRATA_TRY(keys.read_or("vocab_size", kWidthMax, config.vocabulary, said));
    if (said == config.vocabulary) return Ok{};
    return STRATA_ERROR(quote(keys.file().path()), ": ", Keys::full("vocab_size"), " is ", said,
                        ", wanted the ", config.vocabulary, " rows of the codebooks");
}

// The codebooks have a row for every token of the target.
Status read_vocabulary(const Keys& keys, Config& config) {
    const gguf::File& file = keys.file();
    for (const char* name : {"selector_predecessor.weight", "selector.pred_codebook"}) {
        const gguf::Tensor* codebook = file.find_tensor(name);
        if (codebook == nullptr) continue;
        if (codebook->dimension(1) > kWidthMax) {
            return STRATA_ERROR(quote(file.path()), ": tensor ", quote(name), " has ",
                                codebook->dimension(1), " rows, wanted at most ", kWidthMax);
        }
        config.vocabulary = static_cast<std::int64_t>(codebook->dimension(1));
        return check_vocabulary(keys, config);
    }
    return STRATA_ERROR(quote(file.path()),
                        ": tensor 'selector_predecessor.weight' is missing, which says how many "
                        "tokens there are");
}

Status check_sizes(const Config& config) {
    if (config.kv_heads < 1 || config.heads % config.kv_heads != 0) {
        return STRATA_ERROR("attention has ", config.heads, " heads and ", config.kv_heads,
                            " key-value heads, wanted a multiple");
    }
    if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0 ||
        config.rotary_dim > config.head_dim) {
        return STRATA_ERROR("the rotary width is ", config.rotary_dim,
                            ", wanted an even number up to the head width ", config.head_dim);
    }
    if (!(config.rope_base > 0) || !std::isfinite(config.rope_base)) {
        return STRATA_ERROR("the rope base is ", config.rope_base, ", wanted a positive number");
    }
    if (!(config.epsilon > 0) || !(config.epsilon < 1)) {
        return STRATA_ERROR("the norm epsilon is ", config.epsilon, ", wanted between 0 and 1");
    }
    if (config.conv_group < 1 || config.hidden % config.conv_group != 0) {
        return STRATA_ERROR("convolutions have groups of ", config.conv_group,
                            " channels, wanted a divisor of the width ", config.hidden);
    }
    return Ok{};
}

}  // namespace

Status validate(const Config& config) {
    STRATA_TRY(check_sizes(config));
    if (config.block_size < 2 || config.block_size > kBlockMax) {
        return STRATA_ERROR("a block has ", config.block_size, " rows, wanted 2 to ", kBlockMax);
    }
    if (config.mask_token >= config.vocabulary) {
        return STRATA_ERROR("the mask token is ", config.mask_token,
                            ", wanted one below the vocabulary of ", config.vocabulary);
    }
    if (config.candidates > config.vocabulary) {
        return STRATA_ERROR("the selector takes ", config.candidates,
                            " candidates, wanted at most the vocabulary of ", config.vocabulary);
    }
    for (std::size_t i = 1; i < config.target_layers.size(); ++i) {
        if (config.target_layers[i] <= config.target_layers[i - 1]) {
            return STRATA_ERROR("features are taken after target layer ", config.target_layers[i],
                                " next to ", config.target_layers[i - 1],
                                ", wanted ascending layers");
        }
    }
    return Ok{};
}

std::vector<std::int64_t> spread_layers(std::int64_t layers) {
    constexpr std::int64_t kTaps = 5;
    const bool inner = layers - 3 - 5 >= kTaps - 1;
    const std::int64_t count = std::min(kTaps, layers);
    const auto first = inner ? 5.0 : 0.0;
    const auto last = static_cast<double>(inner ? layers - 3 : layers - 1);
    std::vector<std::int64_t> taps;
    for (std::int64_t i = 0; i < count; ++i) {
        const double share =
            count == 1 ? 0 : static_cast<double>(i) / static_cast<double>(count - 1);
        taps.push_back(std::llrint(first + (last - first) * share));
    }
    return taps;
}

Status check_target(const Config& config, const model::Config& target) {
    if (config.hidden != target.hidden) {
        return STRATA_ERROR("the draft's width is ", config.hidden, ", wanted the target's ",
                            target.hidden);
    }
    if (config.vocabulary != target.vocabulary) {
        return STRATA_ERROR("the draft's vocabulary is ", config.vocabulary,
                            ", wanted the target's ", target.vocabulary);
    }
    if (config.target_layers.back() >= target.layers) {
        return STRATA_ERROR("the draft takes features after layer ", config.target_layers.back(),
                            " of its target, wanted layers 0 to ", target.layers - 1);
    }
    return Ok{};
}

Result<Config> config_from_gguf(const gguf::File& file) {
    const Keys keys(file);
    STRATA_TRY(check_kind(keys));
    STRATA_TRY(check_scales(keys));
    Config config;
    STRATA_TRY(keys.read("block_count", kLayersMax, config.layers));
    STRATA_TRY(keys.read("embedding_length", kWidthMax, config.hidden));
    STRATA_TRY(keys.read("feed_forward_length", kWidthMax, config.feed_width));
    STRATA_TRY(keys.read_or("context_length", kContextMax, kContextMax, config.context));
    STRATA_TRY(read_attention(keys, config));
    STRATA_TRY(read_window(keys, config));
    STRATA_TRY(read_target_layers(keys, config));
    STRATA_TRY(read_block(keys, config));
    STRATA_TRY(read_vocabulary(keys, config));
    if (Status status = validate(config); !status.ok()) {
        return STRATA_ERROR(quote(file.path()), ": ", status.error().message);
    }
    return config;
}

}  // namespace strata::dflash
