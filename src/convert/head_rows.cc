#include "convert/head_rows.h"

#include <algorithm>

#include "base/text.h"
#include "convert/type_choice.h"
#include "gguf/same_tokenizer.h"
#include "model/factors.h"
#include "spec/dflash/tensors.h"
#include "strata/types.h"

namespace strata::convert {
namespace {

constexpr std::string_view kTokenizerModel = "tokenizer.ggml.model";

bool has_tokenizer(const gguf::File& file) {
    const gguf::Value* model = file.find(kTokenizerModel);
    return model != nullptr && model->as_string() != "none";
}

// A row of fractions for each token.
Result<const gguf::Tensor*> find_rows(const gguf::File& target, std::string_view name,
                                      const model::Config& config) {
    STRATA_ASSIGN(const gguf::Tensor* tensor, gguf::require_tensor(target, name));
    const std::vector<std::uint64_t> wanted = {static_cast<std::uint64_t>(config.hidden),
                                               static_cast<std::uint64_t>(config.vocabulary)};
    if (tensor->shape == wanted && quant::info(tensor->type).decode != nullptr) return tensor;
    return STRATA_ERROR(quote(target.path()), ": tensor ", quote(name), " has the shape ",
                        shape_text(tensor->shape), " and type ", quant::info(tensor->type).name,
                        ", wanted ", shape_text(wanted), " of a floating-point or quantized type");
}

}  // namespace

Result<std::vector<std::int64_t>> sorted_vocabulary(const std::vector<std::int32_t>& given,
                                                    std::int64_t vocabulary, std::int64_t least) {
    std::vector<std::int64_t> tokens(given.begin(), given.end());
    std::sort(tokens.begin(), tokens.end());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < 0 || tokens[i] >= vocabulary) {
            return STRATA_ERROR("the draft vocabulary holds token ", tokens[i], ", wanted 0 to ",
                                vocabulary - 1);
        }
        if (i > 0 && tokens[i] == tokens[i - 1]) {
            return STRATA_ERROR("the draft vocabulary holds token ", tokens[i],
                                " twice, wanted each token once");
        }
    }
    if (!tokens.empty() && std::ssize(tokens) < least) {
        return STRATA_ERROR("the draft vocabulary has ", tokens.size(),
                            " tokens, wanted at least the ", least, " that a guess is chosen from");
    }
    return tokens;
}

Result<const gguf::Tensor*> find_embedding(const gguf::File& target, const model::Config& config) {
    STRATA_ASSIGN(const gguf::Tensor* rows, find_rows(target, dflash::kEmbeddingName, config));
    STRATA_TRY(model::refuse_factors(target, *rows));
    return rows;
}

Result<Head> find_head(const gguf::File& target, const model::Config& config) {
    Head head;
    head.file = &target;
    if (target.find_tensor(dflash::kHeadName) == nullptr) {
        STRATA_ASSIGN(head.rows, find_embedding(target, config));
        return head;
    }
    STRATA_ASSIGN(head.rows, find_rows(target, dflash::kHeadName, config));
    STRATA_ASSIGN(const std::vector<float> factors, model::factors_of(target, *head.rows));
    if (!factors.empty()) head.factor = factors.front();
    return head;
}

Status set_keys(const gguf::File& drafter, const gguf::File& target, gguf::Writer& writer) {
    copy_metadata(drafter, writer);
    if (!has_tokenizer(target)) return Ok{};
    if (has_tokenizer(drafter)) return gguf::check_same_tokenizer(drafter, target);
    for (const auto& [key, value] : target.metadata()) {
        if (key.starts_with("tokenizer.")) writer.set(key, value);
    }
    const gguf::Value* mask = drafter.find("tokenizer.ggml.mask_token_id");
    if (mask != nullptr) writer.set("tokenizer.ggml.mask_token_id", *mask);
    return Ok{};
}

std::uint64_t HeadRows::bytes() const {
    return rows() * quant::row_bytes(type_, width()).value() + tokens_.size_bytes();
}

Status HeadRows::check_type() const {
    const quant::TypeInfo& info = quant::info(type_);
    if (info.encode == nullptr && type_ != from_.type) {
        return STRATA_ERROR("type ", info.name, " of the head is not one that is written, ",
                            "wanted one of: ", writable_types());
    }
    if (factor_ && type_ == from_.type) {
        return STRATA_ERROR("tensor ", quote(from_.name), " has a factor of its own, which a head ",
                            "of the same type ", info.name,
                            " would lack; choose another type for the head");
    }
    if (width() % static_cast<std::uint64_t>(info.block) == 0) return Ok{};
    return STRATA_ERROR("tensor ", quote(from_.name), " has rows of ", width(), " values, and ",
                        info.name, " wants a multiple of ", info.block,
                        "; choose another type for the head");
}

Status HeadRows::declare(std::string_view head, std::string_view map, gguf::Writer& writer) const {
    const std::uint64_t shape[] = {width(), rows()};
    STRATA_TRY(writer.add_tensor(std::string(head), type_, shape));
    if (tokens_.empty()) return Ok{};
    const std::uint64_t count[] = {tokens_.size()};
    return writer.add_tensor(std::string(map), quant::Type::i64, count);
}

// Rows first .. first+count-1 of the output.
Status HeadRows::encode(std::uint64_t first, std::uint64_t count, std::vector<std::byte>& bytes) {
    const std::uint64_t from_bytes = from_.data.size() / from_.dimension(1);
    const std::uint64_t to_bytes = quant::row_bytes(type_, width()).value();
    bytes.resize(count * to_bytes);
    values_.resize(width());
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto row = from_.data.subspan(source_row(first + i) * from_bytes, from_bytes);
        std::byte* to = bytes.data() + i * to_bytes;
        if (type_ == from_.type) {
            std::copy(row.begin(), row.end(), to);
            continue;
        }
        const auto n = static_cast<std::int64_t>(width());
        quant::info(from_.type).decode(row.data(), values_.data(), n);
        for (float& value : values_) value *= factor_.value_or(1.0F);
        STRATA_TRY(check_range(type_, file_.path(), from_.name, values_));
        quant::info(type_).encode(values_.data(), to, n);
    }
    return Ok{};
}

Status HeadRows::write(TensorData& data) {
    const std::uint64_t step = std::max<std::uint64_t>(1, kPieceValues / width());
    std::vector<std::byte> bytes;
    for (std::uint64_t row = 0; row < rows(); row += step) {
        STRATA_TRY(encode(row, std::min(step, rows() - row), bytes));
        STRATA_TRY(data.write(bytes));
    }
    return data.copy(std::as_bytes(tokens_));
}

}  // namespace strata::convert
