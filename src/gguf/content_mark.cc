#include "gguf/content_mark.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace strata::gguf {
namespace {

// Of keys that say nothing of weights: the text's, the file's, and those of a split set.
constexpr std::string_view kForeign[] = {"tokenizer.", "general.", "split."};

// FNV-1a (Fowler, Noll, Vo).
class Hash {
  public:
    void add(const char* bytes, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            value_ = (value_ ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
        }
    }
    std::string bytes() const { return {reinterpret_cast<const char*>(&value_), sizeof(value_)}; }

  private:
    std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

std::string content_mark(const File& file) {
    constexpr std::size_t kStart = 1024;  // bytes; enough to tell trained weights apart
    Hash hash;
    for (const auto& [key, value] : file.metadata()) {
        const auto starts = [&name = key](std::string_view prefix) {
            return name.starts_with(prefix);
        };
        if (std::ranges::any_of(kForeign, starts)) continue;
        hash.add(key.data(), key.size());
        hash.add(value.payload().data(), value.payload().size());
    }
    for (const Tensor& tensor : file.tensors()) {
        hash.add(reinterpret_cast<const char*>(tensor.data.data()),
                 std::min(kStart, tensor.data.size()));
    }
    return hash.bytes();
}

}  // namespace strata::gguf
