#include "synth/synth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/hf_config.h"
#include "convert/metadata.h"
#include "gguf/writer.h"
#include "model/tensors.h"

namespace strata::synth {
namespace {

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

std::uint64_t rows_of(const model::TensorSpec& spec) {
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < spec.shape.size(); ++i) rows *= spec.shape[i];
    return rows;
}

// Encoded blocks of matrices, one after another, and how many bytes each has.
struct Pool {
    std::vector<std::byte> blocks;
    std::size_t block_bytes = 0;

    std::span<const std::byte> draw(std::uint64_t bits) const {
        const std::uint64_t count = blocks.size() / block_bytes;
        return std::span(blocks).subspan(bits % count * block_bytes, block_bytes);
    }
};

// Of blocks that are drawn before they are written.
constexpr std::uint64_t kBatchBytes = std::uint64_t{32} << 20;

class Filler {
  public:
    Filler(const SynthOptions& options, std::uint64_t total, gguf::Writer& writer)
        : options_(options), writer_(writer), total_(total) {}

    Status fill(const model::TensorSpec& spec, quant::Type type) {
        STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(type, spec.shape[0]));
        const bool in_blocks = quant::info(type).block > 1;
        STRATA_CHECK(!in_blocks || spec.role == model::TensorRole::matrix);
        return in_blocks ? fill_blocks(spec, type, rows_of(spec) * row_bytes)
                         : fill_values(spec, type);
    }

  private:
    Status fill_values(const model::TensorSpec& spec, quant::Type type) {
        const quant::TypeInfo& info = quant::info(type);
        const std::uint64_t stream = seed_of(options_.seed, spec.name);
        const std::uint64_t total = rows_of(spec) * spec.shape[0];
        std::vector<float> values(std::min(kPoolValues, total));
        bytes_.resize(values.size() * static_cast<std::size_t>(info.block_bytes));
        for (std::uint64_t first = 0; first < total; first += values.size()) {
            const std::uint64_t count = std::min<std::uint64_t>(values.size(), total - first);
            for (std::uint64_t i = 0; i < count; ++i) {
                values[i] = value_of(spec, mix(stream + first + i));
            }
            info.encode(values.data(), bytes_.data(), static_cast<std::int64_t>(count));
            const std::uint64_t bytes = count * static_cast<std::uint64_t>(info.block_bytes);
            STRATA_TRY(write(std::span(bytes_).first(bytes)));
        }
        return Ok{};
    }

    Status fill_blocks(const model::TensorSpec& spec, quant::Type type, std::uint64_t total) {
        const Pool& pool = pool_of(spec, type);
        const std::uint64_t stream = seed_of(options_.seed, spec.name);
        const std::uint64_t step = kBatchBytes / pool.block_bytes;
        const std::uint64_t blocks = total / pool.block_bytes;
        for (std::uint64_t first = 0; first < blocks; first += step) {
            const std::uint64_t count = std::min(step, blocks - first);
            bytes_.resize(count * pool.block_bytes);
            threads_.parallel_for(static_cast<std::int64_t>(count),
                                  [&](std::int64_t begin, std::int64_t end, int) {
                                      for (auto i = static_cast<std::uint64_t>(begin);
                                           i < static_cast<std::uint64_t>(end); ++i) {
                                          std::ranges::copy(pool.draw(mix(stream + first + i)),
                                                            bytes_.data() + i * pool.block_bytes);
                                      }
                                  });
            STRATA_TRY(write(bytes_));
        }
        return Ok{};
    }

    const Pool& pool_of(const model::TensorSpec& spec, quant::Type type) {
        Pool& pool = pools_[{type, spec.shape[0]}];
        if (!pool.blocks.empty()) return pool;
        const quant::TypeInfo& info = quant::info(type);
        const auto block = static_cast<std::uint64_t>(info.block);
        const std::uint64_t stream = seed_of(options_.seed, info.name);
        std::vector<float> values(std::max(kPoolValues / block, std::uint64_t{1}) * block);
        for (std::uint64_t i = 0; i < values.size(); ++i) {
            values[i] = value_of(spec, mix(stream + i));
        }
        pool.block_bytes = static_cast<std::size_t>(info.block_bytes);
        pool.blocks.resize(values.size() / block * pool.block_bytes);
        info.encode(values.data(), pool.blocks.data(), static_cast<std::int64_t>(values.size()));
        return pool;
    }

    Status write(std::span<const std::byte> bytes) {
        STRATA_TRY(writer_.write_tensor_data(bytes));
        done_ += bytes.size();
        if (!options_.progress || options_.progress(done_, total_)) return Ok{};
        return STRATA_ERROR("the model was interrupted after ", done_, " of ", total_, " bytes");
    }

    const SynthOptions& options_;
    gguf::Writer& writer_;
    std::map<std::pair<quant::Type, std::uint64_t>, Pool> pools_;
    ThreadPool threads_{available_threads()};
    std::vector<std::byte> bytes_;
    std::uint64_t done_ = 0;
    std::uint64_t total_;
};

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
    writer.set("general.file_type", gguf::Value::of(convert::file_type(options.types.type)));
    writer.set("general.quantization_version", gguf::Value::of(convert::kQuantizationVersion));
    set_tokenizer(options, writer);
    const std::vector<model::TensorSpec> specs = model::tensor_list(options.config);
    std::vector<quant::Type> types;
    std::uint64_t total = 0;
    for (const model::TensorSpec& spec : specs) {
        STRATA_ASSIGN(const quant::Type type, convert::choose_type(options.types, spec));
        STRATA_TRY(writer.add_tensor(spec.name, type, spec.shape));
        STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(type, spec.shape[0]));
        total += rows_of(spec) * row_bytes;
        types.push_back(type);
    }
    STRATA_TRY(writer.begin(options.output));
    Filler filler(options, total, writer);
    for (std::size_t i = 0; i < specs.size(); ++i) STRATA_TRY(filler.fill(specs[i], types[i]));
    return writer.commit();
}

}  // namespace strata::synth
