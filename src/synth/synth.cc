#include "synth/synth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/draft.h"
#include "convert/hf_config.h"
#include "convert/metadata.h"
#include "gguf/writer.h"
#include "model/tensors.h"
#include "spec/dflash/tensors.h"

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

// A file that is declared and not yet begun.
struct Plan {
    std::string output;
    gguf::Writer writer;
    std::vector<model::TensorSpec> specs;
    std::vector<quant::Type> types;  // of specs
    std::uint64_t bytes = 0;         // of all tensors

    Status add(model::TensorSpec spec, quant::Type type) {
        STRATA_TRY(writer.add_tensor(spec.name, type, spec.shape));
        STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(type, spec.shape[0]));
        bytes += rows_of(spec) * row_bytes;
        specs.push_back(std::move(spec));
        types.push_back(type);
        return Ok{};
    }
};

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
    // `total` bytes are to be written, of all files.
    Filler(const SynthOptions& options, std::uint64_t total) : options_(options), total_(total) {}

    Status write(Plan& plan) {
        STRATA_TRY(plan.writer.begin(plan.output));
        writer_ = &plan.writer;
        for (std::size_t i = 0; i < plan.specs.size(); ++i) {
            STRATA_TRY(fill(plan.specs[i], plan.types[i]));
        }
        return plan.writer.commit();
    }

  private:
    Status fill(const model::TensorSpec& spec, quant::Type type) {
        STRATA_ASSIGN(const std::uint64_t row_bytes, quant::row_bytes(type, spec.shape[0]));
        const bool in_blocks = quant::info(type).block > 1;
        STRATA_CHECK(!in_blocks || spec.role == model::TensorRole::matrix);
        return in_blocks ? fill_blocks(spec, type, rows_of(spec) * row_bytes)
                         : fill_values(spec, type);
    }

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
        STRATA_TRY(writer_->write_tensor_data(bytes));
        done_ += bytes.size();
        if (!options_.progress || options_.progress(done_, total_)) return Ok{};
        return STRATA_ERROR("writing was interrupted after ", done_, " of ", total_, " bytes");
    }

    const SynthOptions& options_;
    gguf::Writer* writer_ = nullptr;  // of the file that is being written
    std::map<std::pair<quant::Type, std::uint64_t>, Pool> pools_;
    ThreadPool threads_{available_threads()};
    std::vector<std::byte> bytes_;
    std::uint64_t done_ = 0;
    std::uint64_t total_;
};

void set_common_keys(const SynthOptions& options, quant::Type type, gguf::Writer& writer) {
    writer.set("general.name", gguf::Value::string("random weights"));
    writer.set("general.file_type", gguf::Value::of(convert::file_type(type)));
    writer.set("general.quantization_version", gguf::Value::of(convert::kQuantizationVersion));
    const std::int64_t tokens = options.config.vocabulary;
    if (options.tokenizer && tokens >= kByteVocabularyTokens) {
        convert::set_vocabulary_keys(byte_vocabulary(tokens), writer);
    } else {
        writer.set("tokenizer.ggml.model", gguf::Value::string("none"));
    }
}

Result<Plan> plan_model(const SynthOptions& options) {
    STRATA_TRY(model::validate(options.config));
    Plan plan;
    plan.output = options.output;
    convert::HfConfig config;
    config.model = options.config;
    convert::set_model_keys(config, plan.writer);
    set_common_keys(options, options.types.type, plan.writer);
    for (model::TensorSpec& spec : model::tensor_list(options.config)) {
        STRATA_ASSIGN(const quant::Type type, convert::choose_type(options.types, spec));
        STRATA_TRY(plan.add(std::move(spec), type));
    }
    return plan;
}

model::TensorRole role_of(const dflash::TensorSpec& spec) {
    if (spec.kind != dflash::TensorKind::numbers) return model::TensorRole::matrix;
    return spec.shape.size() == 1 ? model::TensorRole::gain : model::TensorRole::convolution;
}

Result<Plan> plan_draft(const SynthOptions& options, const dflash::Config& draft) {
    STRATA_TRY(dflash::validate(draft));
    STRATA_TRY(dflash::check_target(draft, options.config));
    if (same_place(options.output, options.draft_output)) {
        return STRATA_ERROR("the draft is to be written to ", quote(options.draft_output),
                            ", where the model goes: another name is wanted");
    }
    Plan plan;
    plan.output = options.draft_output;
    const quant::Type wanted = options.types.dense.value_or(options.types.type);
    convert::set_draft_keys(draft, plan.writer);
    set_common_keys(options, wanted, plan.writer);
    plan.writer.set("tokenizer.ggml.mask_token_id",
                    gguf::Value::of(static_cast<std::uint32_t>(draft.mask_token)));
    for (const dflash::TensorSpec& spec : dflash::tensor_list(draft)) {
        STRATA_ASSIGN(const quant::Type type, convert::draft_type(wanted, spec));
        model::TensorSpec filled;
        filled.name = spec.name;
        filled.shape = spec.shape;
        filled.role = role_of(spec);
        STRATA_TRY(plan.add(std::move(filled), type));
    }
    return plan;
}

}  // namespace

Status synthesize(const SynthOptions& options) {
    STRATA_ASSIGN(Plan model, plan_model(options));
    std::uint64_t total = model.bytes;
    std::optional<Plan> draft;
    if (options.draft) {
        STRATA_ASSIGN(draft, plan_draft(options, *options.draft));
        total += draft->bytes;
    }
    Filler filler(options, total);
    STRATA_TRY(filler.write(model));
    return draft ? filler.write(*draft) : Status(Ok{});
}

}  // namespace strata::synth
