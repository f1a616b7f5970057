#include "convert/quantize.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/importance.h"
#include "convert/metadata.h"
#include "convert/rewrite.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "model/factors.h"
#include "model/tensors.h"

namespace strata::convert {
namespace {

struct Plan {
    const gguf::Tensor* from;
    quant::Type type;
    std::uint64_t row_bytes;  // of the output
    // That what is stored is to be multiplied by, each for an equal share of the rows.
    std::vector<float> factors;

    std::uint64_t width() const { return from->shape[0]; }
    std::uint64_t rows() const { return from->elements() / width(); }
    std::uint64_t bytes() const { return rows() * row_bytes; }
    float factor(std::uint64_t row) const {
        return factors.empty() ? 1.0F : factors[row / (rows() / factors.size())];
    }
};

using Specs = std::unordered_map<std::string, model::TensorSpec>;

Result<Specs> specs_of(const gguf::File& file, const model::Config& config) {
    const std::vector<std::string> missing = model::missing_tensors(config, file);
    if (!missing.empty()) return STRATA_ERROR(quote(file.path()), ": ", missing.front());
    Specs specs;
    for (const model::TensorSpec& spec : model::tensor_list(config)) {
        if (spec.presence == model::Presence::separate_or_fused) {
            model::TensorSpec fused = spec;
            fused.name = model::block_name(spec.block, model::kFusedExpertsName);
            specs.emplace(fused.name, fused);
        }
        specs.emplace(spec.name, spec);
    }
    return specs;
}

Result<quant::Type> type_for(const QuantizeOptions& options, const Specs& specs,
                             const gguf::Tensor& tensor) {
    const auto found = specs.find(tensor.name);
    const bool fractions = quant::info(tensor.type).decode != nullptr;
    if (found == specs.end() || !fractions) return tensor.type;
    const TypeChoice& types = options.types;
    if (options.keep && !names(types, found->second.tensor_class)) return tensor.type;
    model::TensorSpec spec = found->second;
    spec.shape = tensor.shape;
    return choose_type(types, spec);
}

// Whether the tensor is a part of the values of another that is written in a new type.
Result<bool> is_taken_in(const QuantizeOptions& options, const Specs& specs, const gguf::File& file,
                         const gguf::Tensor& tensor) {
    const gguf::Tensor* matrix = model::matrix_of_factors(file, tensor);
    if (matrix == nullptr || matrix->type != quant::Type::nvfp4) return false;
    STRATA_ASSIGN(const quant::Type type, type_for(options, specs, *matrix));
    return type != matrix->type;
}

Result<std::vector<Plan>> make_plans(const QuantizeOptions& options, const gguf::File& file,
                                     const model::Config& config, gguf::Writer& writer) {
    STRATA_ASSIGN(const Specs specs, specs_of(file, config));
    if (options.only_mtp && (config.mtp_layers == 0 || !options.mtp)) {
        return STRATA_ERROR(quote(file.path()), ": the MTP layer alone was asked for, and ",
                            config.mtp_layers == 0 ? "the model has none" : "it is left out");
    }
    const std::string mtp_block = model::block_name(config.layers, "");
    std::vector<Plan> plans;
    for (const gguf::Tensor& tensor : file.tensors()) {
        const bool in_layer = tensor.name.starts_with(mtp_block);
        if (in_layer ? !options.mtp : options.only_mtp) continue;
        STRATA_ASSIGN(const bool taken_in, is_taken_in(options, specs, file, tensor));
        if (taken_in) continue;
        STRATA_ASSIGN(const quant::Type type, type_for(options, specs, tensor));
        STRATA_ASSIGN(std::vector<float> factors, model::factors_of(file, tensor));
        STRATA_ASSIGN(const std::uint64_t bytes, quant::row_bytes(type, tensor.shape[0]));
        STRATA_TRY(writer.add_tensor(tensor.name, type, tensor.shape));
        plans.push_back({&tensor, type, bytes, std::move(factors)});
    }
    return plans;
}

void set_metadata(const QuantizeOptions& options, const gguf::File& file,
                  const model::Config& config, gguf::Writer& writer) {
    copy_metadata(file, writer);
    if (!options.keep)
        writer.set("general.file_type", gguf::Value::of(file_type(options.types.type)));
    writer.set("general.quantization_version", gguf::Value::of(kQuantizationVersion));
    if (!options.mtp && config.mtp_layers > 0) leave_out_mtp(file, config.layers, writer);
}

class Work {
  public:
    Work(const QuantizeOptions& options, const std::vector<Plan>& plans,
         const ImportanceFile* importance, gguf::Writer& writer)
        : input_(options.input),
          importance_(importance),
          data_(writer, options.progress, bytes_of(plans)),
          pool_(options.threads) {}

    Status run(const Plan& plan) {
        return plan.type == plan.from->type ? data_.copy(plan.from->data) : encode(plan);
    }

  private:
    static std::uint64_t bytes_of(const std::vector<Plan>& plans) {
        std::uint64_t total = 0;
        for (const Plan& plan : plans) total += plan.bytes();
        return total;
    }

    Status encode(const Plan& plan) {
        const std::uint64_t step = std::max<std::uint64_t>(1, kPieceValues / plan.width());
        for (std::uint64_t row = 0; row < plan.rows(); row += step) {
            const std::uint64_t count = std::min(step, plan.rows() - row);
            STRATA_TRY(encode_rows(plan, row, count));
            STRATA_TRY(data_.write(std::span(bytes_).first(count * plan.row_bytes)));
        }
        return Ok{};
    }

    Status encode_rows(const Plan& plan, std::uint64_t first, std::uint64_t count) {
        const std::uint64_t from_bytes = plan.from->data.size() / plan.rows();
        const auto decode = quant::info(plan.from->type).decode;
        values_.resize(count * plan.width());
        bytes_.resize(count * plan.row_bytes);
        std::vector<Status> found(static_cast<std::size_t>(pool_.size()), Ok{});
        pool_.parallel_for(static_cast<std::int64_t>(count), [&](std::int64_t begin,
                                                                 std::int64_t end, int thread) {
            for (auto r = static_cast<std::uint64_t>(begin); r < static_cast<std::uint64_t>(end);
                 ++r) {
                const std::span row = std::span(values_).subspan(r * plan.width(), plan.width());
                const auto width = static_cast<std::int64_t>(plan.width());
                decode(plan.from->data.data() + (first + r) * from_bytes, row.data(), width);
                for (float& value : row) value *= plan.factor(first + r);
                Status status = check_range(plan.type, input_, plan.from->name, row);
                if (!status.ok()) {
                    found[static_cast<std::size_t>(thread)] = std::move(status);
                    return;
                }
                encode_row(plan, first + r, row, bytes_.data() + r * plan.row_bytes);
            }
        });
        for (Status& status : found) STRATA_TRY(std::move(status));
        return Ok{};
    }

    // As encode, minding what is known of the row's columns.
    void encode_row(const Plan& plan, std::uint64_t row, std::span<const float> values,
                    std::byte* to) const {
        const quant::TypeInfo& type = quant::info(plan.type);
        const auto width = static_cast<std::int64_t>(values.size());
        std::span<const float> weights;
        if (importance_ != nullptr && type.encode_weighted != nullptr) {
            weights = importance_->row(*plan.from, row);
        }
        if (weights.empty()) {
            type.encode(values.data(), to, width);
        } else {
            type.encode_weighted(values.data(), weights.data(), to, width);
        }
    }

    const std::string& input_;
    const ImportanceFile* importance_;  // null: none
    TensorData data_;
    ThreadPool pool_;
    std::vector<float> values_;
    std::vector<std::byte> bytes_;
};

}  // namespace

Status quantize(const QuantizeOptions& options) {
    if (options.only_mtp) STRATA_TRY(check_layer_types(options.types));
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(options.input));
    STRATA_TRY(check_not_input(file, options.output));
    STRATA_ASSIGN(const model::Config config, model::config_from_gguf(file));
    gguf::Writer writer;
    set_metadata(options, file, config, writer);
    STRATA_ASSIGN(const std::vector<Plan> plans, make_plans(options, file, config, writer));
    std::optional<ImportanceFile> importance;
    if (!options.importance.empty()) {
        STRATA_ASSIGN(importance, ImportanceFile::open(options.importance));
        for (const Plan& plan : plans) STRATA_TRY(importance->check(*plan.from));
        writer.set("quantize.imatrix.entries_count",
                   gguf::Value::of(static_cast<std::int32_t>(importance->tensors())));
    }
    STRATA_TRY(writer.begin(options.output));
    Work work(options, plans, importance ? &*importance : nullptr, writer);
    for (const Plan& plan : plans) STRATA_TRY(work.run(plan));
    return writer.commit();
}

}  // namespace strata::convert
