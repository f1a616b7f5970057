#include "convert/draft_head.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "convert/rewrite.h"
#include "convert/type_choice.h"
#include "gguf/reader.h"
#include "gguf/same_tokenizer.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "model/factors.h"
#include "spec/dflash/config.h"
#include "spec/dflash/tensors.h"
#include "strata/types.h"

namespace strata::convert {
namespace {

constexpr std::string_view kTokenizerModel = "tokenizer.ggml.model";

bool has_tokenizer(const gguf::File& file) {
    const gguf::Value* model = file.find(kTokenizerModel);
    return model != nullptr && model->as_string() != "none";
}

// The draft's keys; where it has no tokenizer, the target's beside its own mask token.
Status set_keys(const gguf::File& draft, const gguf::File& target, gguf::Writer& writer) {
    copy_metadata(draft, writer);
    if (!has_tokenizer(target)) return Ok{};
    if (has_tokenizer(draft)) return gguf::check_same_tokenizer(draft, target);
    for (const auto& [key, value] : target.metadata()) {
        if (key.starts_with("tokenizer.")) writer.set(key, value);
    }
    const gguf::Value* mask = draft.find("tokenizer.ggml.mask_token_id");
    if (mask != nullptr) writer.set("tokenizer.ggml.mask_token_id", *mask);
    return Ok{};
}

// In ascending order, as d2t has them.
Result<std::vector<std::int64_t>> sorted_vocabulary(const std::vector<std::int32_t>& given,
                                                    const dflash::Config& config) {
    std::vector<std::int64_t> tokens(given.begin(), given.end());
    std::sort(tokens.begin(), tokens.end());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < 0 || tokens[i] >= config.vocabulary) {
            return STRATA_ERROR("the draft vocabulary holds token ", tokens[i], ", wanted 0 to ",
                                config.vocabulary - 1);
        }
        if (i > 0 && tokens[i] == tokens[i - 1]) {
            return STRATA_ERROR("the draft vocabulary holds token ", tokens[i],
                                " twice, wanted each token once");
        }
    }
    if (!tokens.empty() && std::ssize(tokens) < config.candidates) {
        return STRATA_ERROR("the draft vocabulary has ", tokens.size(),
                            " tokens, wanted at least the ", config.candidates,
                            " that the selector chooses from");
    }
    return tokens;
}

// A row of fractions for each token.
Result<const gguf::Tensor*> find_rows(const gguf::File& target, std::string_view name,
                                      const model::Config& config) {
    STRATA_ASSIGN(const gguf::Tensor* tensor, gguf::require_tensor(target, name));
    STRATA_TRY(model::refuse_factors(target, *tensor));
    const std::vector<std::uint64_t> wanted = {static_cast<std::uint64_t>(config.hidden),
                                               static_cast<std::uint64_t>(config.vocabulary)};
    if (tensor->shape == wanted && quant::info(tensor->type).decode != nullptr) return tensor;
    return STRATA_ERROR(quote(target.path()), ": tensor ", quote(name), " has the shape ",
                        shape_text(tensor->shape), " and type ", quant::info(tensor->type).name,
                        ", wanted ", shape_text(wanted), " of a floating-point or quantized type");
}

// The head's rows of one target, in the format that is wanted.
class Head {
  public:
    Head(const gguf::Tensor& from, quant::Type type, std::span<const std::int64_t> tokens)
        : from_(from), type_(type), tokens_(tokens) {}

    std::uint64_t width() const { return from_.shape[0]; }
    std::uint64_t rows() const { return tokens_.empty() ? from_.dimension(1) : tokens_.size(); }

    Status check_type() const {
        const quant::TypeInfo& info = quant::info(type_);
        if (info.encode == nullptr && type_ != from_.type) {
            return STRATA_ERROR("type ", info.name, " of the head is not one that is written, ",
                                "wanted one of: ", writable_types());
        }
        if (width() % static_cast<std::uint64_t>(info.block) == 0) return Ok{};
        return STRATA_ERROR("tensor ", quote(from_.name), " has rows of ", width(), " values, and ",
                            info.name, " wants a multiple of ", info.block,
                            "; choose another type for the head");
    }

    // Rows first .. first+count-1 of the output.
    Status encode(std::uint64_t first, std::uint64_t count, std::vector<std::byte>& bytes) {
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
            STRATA_TRY(check_range(type_, from_.name, values_));
            quant::info(type_).encode(values_.data(), to, n);
        }
        return Ok{};
    }

  private:
    std::uint64_t source_row(std::uint64_t row) const {
        return tokens_.empty() ? row : static_cast<std::uint64_t>(tokens_[row]);
    }

    const gguf::Tensor& from_;
    quant::Type type_;
    std::span<const std::int64_t> tokens_;
    std::vector<float> values_;
};

Status write_head(Head& head, TensorData& data) {
    const std::uint64_t step = std::max<std::uint64_t>(1, kPieceValues / head.width());
    std::vector<std::byte> bytes;
    for (std::uint64_t row = 0; row < head.rows(); row += step) {
        STRATA_TRY(head.encode(row, std::min(step, head.rows() - row), bytes));
        STRATA_TRY(data.write(bytes));
    }
    return Ok{};
}

// What the output holds, in its order: `own` tensors of the draft, the embedding, the head, d2t.
struct Contents {
    std::vector<const gguf::Tensor*> own;
    const gguf::Tensor* embedding;
    Head head;
    std::span<const std::int64_t> tokens;
};

// All but what comes from the target.
std::vector<const gguf::Tensor*> own_tensors(const gguf::File& draft) {
    std::vector<const gguf::Tensor*> own;
    for (const gguf::Tensor& tensor : draft.tensors()) {
        const bool replaced = tensor.name == dflash::kEmbeddingName ||
                              tensor.name == dflash::kHeadName || tensor.name == dflash::kMapName;
        if (!replaced) own.push_back(&tensor);
    }
    return own;
}

Status declare(const Contents& contents, quant::Type type, gguf::Writer& writer) {
    for (const gguf::Tensor* tensor : contents.own) {
        STRATA_TRY(writer.add_tensor(tensor->name, tensor->type, tensor->shape));
    }
    const gguf::Tensor& embedding = *contents.embedding;
    STRATA_TRY(writer.add_tensor(dflash::kEmbeddingName, embedding.type, embedding.shape));
    const std::uint64_t shape[] = {contents.head.width(), contents.head.rows()};
    STRATA_TRY(writer.add_tensor(dflash::kHeadName, type, shape));
    if (contents.tokens.empty()) return Ok{};
    const std::uint64_t count[] = {contents.tokens.size()};
    return writer.add_tensor(dflash::kMapName, quant::Type::i64, count);
}

Status write(const DraftHeadOptions& options, Contents& contents, gguf::Writer& writer) {
    STRATA_ASSIGN(const std::uint64_t row_bytes,
                  quant::row_bytes(options.type, contents.head.width()));
    const auto map = std::as_bytes(contents.tokens);
    std::uint64_t total =
        contents.embedding->data.size() + contents.head.rows() * row_bytes + map.size();
    for (const gguf::Tensor* tensor : contents.own) total += tensor->data.size();
    STRATA_TRY(writer.begin(options.output));
    TensorData data(writer, options.progress, total);
    for (const gguf::Tensor* tensor : contents.own) STRATA_TRY(data.copy(tensor->data));
    STRATA_TRY(data.copy(contents.embedding->data));
    STRATA_TRY(write_head(contents.head, data));
    STRATA_TRY(data.copy(map));
    return writer.commit();
}

}  // namespace

Status add_draft_head(const DraftHeadOptions& options) {
    STRATA_ASSIGN(const gguf::File draft, gguf::File::open(options.draft));
    STRATA_ASSIGN(const gguf::File target, gguf::File::open(options.target));
    STRATA_TRY(check_not_input(draft, options.output));
    STRATA_TRY(check_not_input(target, options.output));
    STRATA_ASSIGN(const dflash::Config config, dflash::config_from_gguf(draft));
    STRATA_TRY(dflash::check_tensors(config, draft));
    STRATA_ASSIGN(const model::Config model, model::config_from_gguf(target));
    STRATA_TRY(dflash::check_target(config, model));
    STRATA_ASSIGN(const auto tokens, sorted_vocabulary(options.vocabulary, config));
    STRATA_ASSIGN(const gguf::Tensor* embedding, find_rows(target, dflash::kEmbeddingName, model));
    const bool tied = target.find_tensor(dflash::kHeadName) == nullptr;
    STRATA_ASSIGN(const gguf::Tensor* head,
                  find_rows(target, tied ? dflash::kEmbeddingName : dflash::kHeadName, model));
    Contents contents{own_tensors(draft), embedding, Head(*head, options.type, tokens), tokens};
    STRATA_TRY(contents.head.check_type());
    gguf::Writer writer;
    STRATA_TRY(set_keys(draft, target, writer));
    STRATA_TRY(declare(contents, options.type, writer));
    return write(options, contents, writer);
}

}  // namespace strata::convert
