#include "eval/same_tokenizer.h"

#include <array>
#include <string_view>

#include "base/text.h"
#include "gguf/reader.h"

namespace strata::eval {
namespace {

// All that decides how a text becomes tokens.
constexpr std::array<std::string_view, 5> kKeys = {
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type", "tokenizer.ggml.merges"};

bool equal(const gguf::Value* a, const gguf::Value* b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a->type() == b->type() && a->element_type() == b->element_type() &&
           a->count() == b->count() && a->payload() == b->payload();
}

}  // namespace

Status check_same_tokenizer(const std::string& path, const std::string& other) {
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(path));
    STRATA_ASSIGN(const gguf::File against, gguf::File::open(other));
    for (const std::string_view key : kKeys) {
        if (!equal(file.find(key), against.find(key))) {
            return STRATA_ERROR(quote(path), " and ", quote(other), " differ in ", key,
                                ", wanted models of one tokenizer");
        }
    }
    return Ok{};
}

}  // namespace strata::eval
