#include "gguf/same_tokenizer.h"

#include <array>
#include <string_view>

#include "base/text.h"

namespace strata::gguf {
namespace {

// All that decides how a text becomes tokens.
constexpr std::array<std::string_view, 5> kKeys = {
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type", "tokenizer.ggml.merges"};

bool equal(const Value* a, const Value* b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a->type() == b->type() && a->element_type() == b->element_type() &&
           a->count() == b->count() && a->payload() == b->payload();
}

}  // namespace

Status check_same_tokenizer(const File& file, const File& other) {
    for (const std::string_view key : kKeys) {
        if (!equal(file.find(key), other.find(key))) {
            return STRATA_ERROR(quote(file.path()), " and ", quote(other.path()), " differ in ",
                                key, ", wanted models of one tokenizer");
        }
    }
    return Ok{};
}

}  // namespace strata::gguf
