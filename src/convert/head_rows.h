// A head for a drafter: rows of a model's head, all or those of some tokens, in a type of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "convert/rewrite.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "quant/type.h"

namespace strata::convert {

// The tokens that a drafter can propose, ascending. Errors: tokens outside the vocabulary or
// repeated, fewer than `least`; no tokens at all are none of these, and stand for all.
Result<std::vector<std::int64_t>> sorted_vocabulary(const std::vector<std::int32_t>& given,
                                                    std::int64_t vocabulary, std::int64_t least);

// Where the rows of a head are stored, and what they are to be multiplied by.
struct Head {
    const gguf::File* file = nullptr;
    const gguf::Tensor* rows = nullptr;
    std::optional<float> factor;  // of its own (model/factors.h)
};

// The embedding or the head of `target`: a row of fractions for each token.
Result<const gguf::Tensor*> find_embedding(const gguf::File& target, const model::Config& config);
Result<Head> find_head(const gguf::File& target, const model::Config& config);

// The keys of `drafter`; where it has no tokenizer, the target's beside its own mask token. Error:
// tokenizers that differ.
Status set_keys(const gguf::File& drafter, const gguf::File& target, gguf::Writer& writer);

class HeadRows {
  public:
    // The rows of `tokens`, or all where there are none. The file and the tokens outlive it.
    HeadRows(const Head& head, quant::Type type, std::span<const std::int64_t> tokens)
        : file_(*head.file),
          from_(*head.rows),
          factor_(head.factor),
          type_(type),
          tokens_(tokens) {}

    std::uint64_t width() const { return from_.shape[0]; }
    std::uint64_t rows() const { return tokens_.empty() ? from_.dimension(1) : tokens_.size(); }
    // Of the head and the list of tokens.
    std::uint64_t bytes() const;

    // Error: a type that is not written, that a row's width cannot hold, or that the rows have and
    // would keep without their factor.
    Status check_type() const;
    // The tensors `head` and, where there are tokens, `map`; then their data in this order.
    Status declare(std::string_view head, std::string_view map, gguf::Writer& writer) const;
    Status write(TensorData& data);

  private:
    std::uint64_t source_row(std::uint64_t row) const {
        return tokens_.empty() ? row : static_cast<std::uint64_t>(tokens_[row]);
    }
    Status encode(std::uint64_t first, std::uint64_t count, std::vector<std::byte>& bytes);

    const gguf::File& file_;
    const gguf::Tensor& from_;
    std::optional<float> factor_;
    quant::Type type_;
    std::span<const std::int64_t> tokens_;
    std::vector<float> values_;
};

}  // namespace strata::convert
