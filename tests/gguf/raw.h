// GGUF files byte by byte, so that tests can make the ones that no writer would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::test {

template <typename T>
std::string raw(T number) {
    return {reinterpret_cast<const char*>(&number), sizeof(T)};
}

inline std::string raw_text(std::string_view text) {
    return raw(std::uint64_t{text.size()}) + std::string(text);
}

inline std::string raw_strings(const std::vector<std::string>& strings) {
    std::string out = raw(std::uint32_t{8}) + raw(std::uint64_t{strings.size()});
    for (const std::string& text : strings) out += raw_text(text);
    return out;
}

struct RawPair {
    std::string key;
    std::uint32_t type;
    std::string payload;  // all that follows the type
};

struct RawTensor {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    std::string data;
};

struct RawGguf {
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::uint64_t alignment = 32;  // of the data; general.alignment is a pair like any other
    std::vector<RawPair> pairs;
    std::vector<RawTensor> tensors;

    // The data of each tensor at its offset, no padding behind the last.
    std::string bytes() const {
        std::string out = magic + raw(version) + raw(std::uint64_t{tensors.size()}) +
                          raw(std::uint64_t{pairs.size()});
        for (const RawPair& pair : pairs) {
            out += raw_text(pair.key) + raw(pair.type) + pair.payload;
        }
        for (const RawTensor& tensor : tensors) {
            out += raw_text(tensor.name) + raw(static_cast<std::uint32_t>(tensor.shape.size()));
            for (const std::uint64_t size : tensor.shape) out += raw(size);
            out += raw(tensor.type) + raw(tensor.offset);
        }
        out.resize((out.size() + alignment - 1) / alignment * alignment);
        const std::size_t start = out.size();
        for (const RawTensor& tensor : tensors) {
            if (tensor.data.empty()) continue;
            if (out.size() < start + tensor.offset) out.resize(start + tensor.offset);
            out.replace(start + tensor.offset, tensor.data.size(), tensor.data);
        }
        return out;
    }
};

// A few keys and two tensors: "x.weight", F32 [4, 2], values 0 to 7, and "y.weight", Q8_0 [32, 1].
inline RawGguf tiny_gguf() {
    RawGguf file;
    file.pairs = {{"general.architecture", 8, raw_text("tiny")},
                  {"tiny.block_count", 4, raw(std::uint32_t{2})},
                  {"tiny.scale", 6, raw(0.5f)},
                  {"tiny.flag", 7, raw(std::uint8_t{1})},
                  {"tiny.sections", 9,
                   raw(std::uint32_t{5}) + raw(std::uint64_t{2}) + raw(std::int32_t{11}) +
                       raw(std::int32_t{-1})},
                  {"tiny.words", 9, raw_strings({"a", "", "longer than the short string buffer"})}};
    std::string values;
    for (int i = 0; i < 8; ++i) values += raw(static_cast<float>(i));
    file.tensors = {{"x.weight", {4, 2}, 0, 0, values},
                    {"y.weight", {32, 1}, 8, 32, std::string(34, '\1')}};
    return file;
}

}  // namespace strata::test
