#include "base/text.h"
#include "convert/ngram_hash.h"
#include "synth/synth.h"

namespace strata::synth {
namespace {

constexpr std::int64_t kAttentionInterval = 4;
constexpr std::uint64_t kTinyTableBase = 211;
constexpr std::uint64_t kFullTableBase = 20'000'000;

}  // namespace

void set_kinds(model::Config& config) {
    config.kinds.assign(static_cast<std::size_t>(config.layers), model::LayerKind::delta_net);
    for (std::int64_t i = kAttentionInterval - 1; i < config.layers; i += kAttentionInterval) {
        config.kinds[static_cast<std::size_t>(i)] = model::LayerKind::sparse_attention;
    }
}

namespace {

void set_shared_by_all(model::Config& config) {
    config.epsilon = 1e-6f;
    config.streams = 4;
    config.delta_kernel = 4;
    config.kv_heads = 2;
    config.rope_base = 1e7;
    config.index_ratio = 4;
    config.ngram.layer = 1;
    config.ngram.size = 3;
    config.ngram.kernel = 4;
}

model::Config tiny() {
    model::Config config;
    set_shared_by_all(config);
    config.layers = 4;
    config.mtp_layers = 1;
    config.hidden = 64;
    config.vocabulary = 331;
    config.context = 512;
    config.stream_rank = 32;
    config.delta_key_heads = 2;
    config.delta_value_heads = 6;
    config.delta_head_dim = 16;
    config.heads = 6;
    config.head_dim = 32;
    config.rotary_dim = 8;
    config.rope_sections = {2, 1, 1, 0};
    config.index_heads = 2;
    config.index_dim = 16;
    config.index_budget = 16;
    config.experts = 16;
    config.experts_active = 4;
    config.expert_hidden = 64;
    config.shared_hidden = 64;
    config.ngram.heads_per_ngram = 1;
    config.ngram.row_width = 32;
    config.ngram.end_token = 7;
    set_kinds(config);
    return config;
}

model::Config flash_next() {
    model::Config config;
    set_shared_by_all(config);
    config.layers = 48;
    config.hidden = 2560;
    config.vocabulary = 248320;
    config.context = 262144;
    config.stream_rank = 320;
    config.delta_key_heads = 16;
    config.delta_value_heads = 48;
    config.delta_head_dim = 128;
    config.heads = 24;
    config.head_dim = 256;
    config.rotary_dim = 64;
    config.rope_sections = {11, 11, 10, 0};
    config.index_heads = 4;
    config.index_dim = 128;
    config.index_budget = 2048;
    config.experts = 512;
    config.experts_active = 10;
    config.expert_hidden = 640;
    config.shared_hidden = 640;
    config.ngram.heads_per_ngram = 8;
    config.ngram.row_width = 160;
    config.ngram.end_token = 248044;
    set_kinds(config);
    return config;
}

}  // namespace

Status set_ngram_hash(model::Config& config, std::uint64_t base) {
    return convert::derive_hash(static_cast<std::uint64_t>(config.vocabulary), base,
                                convert::kHashSeedDefault, config.ngram);
}

Result<model::Config> preset(std::string_view name) {
    model::Config config;
    std::uint64_t base = 0;
    if (name == "tiny") {
        config = tiny();
        base = kTinyTableBase;
    } else if (name == "flash-next") {
        config = flash_next();
        base = kFullTableBase;
    } else {
        return STRATA_ERROR("there is no preset ", quote(name), ", wanted tiny or flash-next");
    }
    STRATA_TRY(set_ngram_hash(config, base));
    return config;
}

}  // namespace strata::synth
