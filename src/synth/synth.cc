#include "synth/synth.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "convert/hf_config.h"
#include "convert/metadata.h"
#include "gguf/writer.h"
#include "model/tensors.h"

namespace strata::synth {
namespace {

// Values made and encoded at a time.
constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 18;

// SplitMix64: a well-mixed function of its counter.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

std::uint64_t seed_of(std::uint64_t seed, std::string_view name) {
    std::uint64_t hash = mix(seed);
    for (const char c : name) hash = mix(hash ^ static_cast<std::uint8_t>(c));
    return hash;
}

// Uniform in [-1, 1).
float centred(std::uint64_t bits) {
    constexpr float kScale = 1.0f / 8388608.0f;  // 2^-23
    return static_cast<float>(bits >> 40) * kScale - 1.0f;
}

float value_of(const model::TensorSpec& spec, std::uint64_t bits) {
    const float u = centred(bits);
    switch (spec.role) {
        case model::TensorRole::gain:
            return 1.0f + 0.3f * u;
        case model::TensorRole::convolution:
            return 0.7f * u;
        // -exp(A_log) with A_log uniform over log(0.01) .. log(16).
        case model::TensorRole::decay_rate:
            return -0.4f * std::exp(3.689f * u);
        case model::TensorRole::decay_bias:
            return 1.0f + u;
        case model::TensorRole::matrix:
            break;
    }
    // Uniform values of this width have the variance 1 / row width.
    return u * std::sqrt(3.0f / static_cast<float>(spec.shape[0]));
}

Status write_tensor(const model::TensorSpec& spec, quant::Type type, std::uint64_t seed,
                    gguf::Writer& writer) {
    const std::uint64_t width = spec.shape[0];
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < spec.shape.size(); ++i) rows *= spec.shape[i];
    STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(type, width));
    const std::uint64_t step = std::max<std::uint64_t>(1, kPieceValues / width);
    const std::uint64_t stream = seed_of(seed, spec.name);
    std::vector<float> values(step * width);
    std::vector<std::byte> encoded(step * row_bytes);
    for (std::uint64_t row = 0; row < rows; row += step) {
        const std::uint64_t count = std::min(step, rows - row);
        for (std::uint64_t i = 0; i < count * width; ++i) {
            values[i] = value_of(spec, mix(stream + row * width + i));
        }
        for (std::uint64_t r = 0; r < count; ++r) {
            quant::info(type).encode(values.data() + r * width, encoded.data() + r * row_bytes,
                                     static_cast<std::int64_t>(width));
        }
        STRATA_TRY(writer.write_tensor_data(std::span(encoded).first(count * row_bytes)));
    }
    return Ok{};
}

void set_tokenizer(const SynthOptions& options, gguf::Writer& writer) {
    const std::int64_t tokens = options.config.vocabulary;
    if (options.tokenizer && tokens >= kByteVocabularyTokens) {
        convert::set_vocabulary_keys(byte_vocabulary(tokens), writer);
    } else {
        writer.set("tokenizer.ggml.model", gguf::Value::string("none"));
    }
}

}  // namespace

Status synthesize(const SynthOptions& options) {
    STRATA_TRY(model::validate(options.config));
    gguf::Writer writer;
    convert::HfConfig config;
    config.model = options.config;
    convert::set_model_keys(config, writer);
    writer.set("general.name", gguf::Value::string("random weights"));
    set_tokenizer(options, writer);
    const std::vector<model::TensorSpec> specs = model::tensor_list(options.config);
    std::vector<quant::Type> types;
    for (const model::TensorSpec& spec : specs) {
        STRATA_ASSIGN(const quant::Type type, convert::choose_type(options.types, spec));
        STRATA_TRY(writer.add_tensor(spec.name, type, spec.shape));
        types.push_back(type);
    }
    STRATA_TRY(writer.begin(options.output));
    for (std::size_t i = 0; i < specs.size(); ++i) {
        STRATA_TRY(write_tensor(specs[i], types[i], options.seed, writer));
        if (options.progress) options.progress(i + 1, specs.size());
    }
    return writer.commit();
}

}  // namespace strata::synth
