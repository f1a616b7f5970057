// A head for a drafter: rows of a model's head, all or those of some tokens, in a type of its own.
#pragma once

#include <cstddef>
#include <cstdint>
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

// The embedding or, where that is wanted, the head of `target`: a row of fractions for each token.
Result<const gguf::Tensor*> find_embedding(const gguf::File& target, const model::Config& config);
Result<const gguf::Tensor*> find_head(const gguf::File& target, const model::Config& config);

// The keys of `drafter`; where it has no tokenizer, the target's beside its own mask token. Error:
// tokenizers that differ.
Status set_keys(const gguf::File& drafter, const gguf::File& target, gguf::Writer& writer);

class HeadRows {
  public:
    // The rows of `tokens`, or all where there are none. All outlive it.
    HeadRows(const gguf::Tensor& from, quant::Type type, std::span<const std::int64_t> tokens)
        : from_(from), type_(type), tokens_(tokens) {}

    std::uint64_t width() const { return from_.shape[0]; }
    std::uint64_t rows() const { return tokens_.empty() ? from_.dimension(1) : tokens_.size(); }
    // Of the head and the list of tokens.
    std::uint64_t bytes() const;

    // Error: a type that is not written, or that a row's width cannot hold.
    Status check_type() const;
    // The tensors `head` and, where there are tokens, `map`; then their data in this order.
    Status declare(std::string_view head, std::string_view map, gguf::Writer& writer) const;
    Status write(TensorData& data);

  private:
    std::uint64_t source_row(std::uint64_t row) const {
        return tokens_.empty() ? row : static_cast<std::uint64_t>(tokens_[row]);
    }
    Status encode(std::uint64_t first, std::uint64_t count, std::vector<std::byte>& bytes);

    const gguf::Tensor& from_;
    quant::Type type_;
    std::span<const std::int64_t> tokens_;
    std::vector<float> values_;
};

}  // namespace strata::convert
