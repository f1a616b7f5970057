// The public name of synthesis: a preset with some of its sizes changed.
#include "strata/synth.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "synth/synth.h"

namespace strata {
namespace {

using Size = std::optional<std::int64_t>;

// At most what model::config_from_gguf takes; smaller where sums must stay far inside 64 bits.
constexpr std::int64_t kLayersMax = 4095;
constexpr std::int64_t kWidthMax = std::int64_t{1} << 20;
constexpr std::int64_t kHeadsMax = std::int64_t{1} << 10;
constexpr std::int64_t kExpertsMax = 4096;
constexpr std::int64_t kExpertsActiveMax = 64;
constexpr std::int64_t kVocabularyMax = std::int64_t{1} << 24;
constexpr std::int64_t kContextMax = std::int64_t{1} << 30;
constexpr std::int64_t kTableRowsMax = std::int64_t{1} << 32;

template <typename To>
Status put(std::string_view what, const Size& size, std::int64_t max, To& to) {
    if (!size) return Ok{};
    if (*size < 1 || *size > max) {
        return STRATA_ERROR("the model is to have ", *size, ' ', what, ", wanted 1 to ", max);
    }
    to = static_cast<To>(*size);
    return Ok{};
}

Status put_sizes(const SynthRequest& request, model::Config& config) {
    STRATA_TRY(put("layers", request.layers, kLayersMax, config.layers));
    STRATA_TRY(put("hidden values", request.hidden, kWidthMax, config.hidden));
    STRATA_TRY(put("tokens of vocabulary", request.vocabulary, kVocabularyMax, config.vocabulary));
    STRATA_TRY(put("tokens of context", request.context, kContextMax, config.context));
    STRATA_TRY(put("heads", request.heads, kHeadsMax, config.heads));
    STRATA_TRY(put("key-value heads", request.kv_heads, kHeadsMax, config.kv_heads));
    STRATA_TRY(put("values a head", request.head_dim, kHeadsMax, config.head_dim));
    STRATA_TRY(
        put("delta net key heads", request.delta_key_heads, kHeadsMax, config.delta_key_heads));
    STRATA_TRY(put("delta net value heads", request.delta_value_heads, kHeadsMax,
                   config.delta_value_heads));
    STRATA_TRY(put("experts", request.experts, kExpertsMax, config.experts));
    STRATA_TRY(
        put("active experts", request.experts_active, kExpertsActiveMax, config.experts_active));
    STRATA_TRY(
        put("values inside an expert", request.expert_hidden, kWidthMax, config.expert_hidden));
    STRATA_TRY(put("values inside the shared expert", request.shared_hidden, kWidthMax,
                   config.shared_hidden));
    STRATA_TRY(
        put("ranks of hyper-connections", request.stream_rank, kWidthMax, config.stream_rank));
    return put("rows of index budget", request.index_budget, kContextMax, config.index_budget);
}

// From the preset's first prime on, unscaled, the primes are the preset's.
Status put_table(const SynthRequest& request, std::int64_t preset_vocabulary,
                 model::Config& config) {
    const auto preset_rows = static_cast<double>(config.ngram.vocabulary.front());
    const double scale =
        static_cast<double>(config.vocabulary) / static_cast<double>(preset_vocabulary);
    auto rows = std::max<std::int64_t>(2, static_cast<std::int64_t>(preset_rows * scale));
    STRATA_TRY(put("table rows a head", request.table_rows, kTableRowsMax, rows));
    if (config.ngram.layer >= config.layers) {
        return STRATA_ERROR("the model is to have ", config.layers,
                            " layers, and its n-gram block lies in layer ", config.ngram.layer,
                            " counted from 0: at least ", config.ngram.layer + 1, " are wanted");
    }
    // <|endoftext|> of the byte vocabulary, or the last token of a smaller one.
    constexpr std::int64_t kEndToken = 256;
    if (config.ngram.end_token >= config.vocabulary) {
        config.ngram.end_token = std::min(kEndToken, config.vocabulary - 1);
    }
    return synth::set_ngram_hash(config,
                                 std::max<std::uint64_t>(2, static_cast<std::uint64_t>(rows)));
}

}  // namespace

Status synthesize_model(const SynthRequest& request, const SynthProgress& progress) {
    synth::SynthOptions options;
    STRATA_ASSIGN(options.config, synth::preset(request.preset));
    STRATA_ASSIGN(options.types, convert::read_types(request));
    const std::int64_t preset_vocabulary = options.config.vocabulary;
    STRATA_TRY(put_sizes(request, options.config));
    synth::set_kinds(options.config);
    options.config.mtp_layers = request.mtp ? 1 : 0;
    STRATA_TRY(put_table(request, preset_vocabulary, options.config));
    options.seed = request.seed;
    options.output = request.output;
    if (!request.dflash.empty()) {
        STRATA_ASSIGN(options.draft, synth::draft_preset(request.preset, options.config));
        options.draft_output = request.dflash;
    }
    if (progress) {
        options.progress = [&progress](std::uint64_t done, std::uint64_t total) {
            return progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
        };
    }
    return synth::synthesize(options);
}

}  // namespace strata
