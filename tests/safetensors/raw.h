// safetensors files from a header of one's own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace strata::test {

inline std::string raw_safetensors(std::string_view header, std::string_view data) {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) +
           std::string(header) + std::string(data);
}

template <typename T>
std::string raw_values(std::initializer_list<T> values) {
    return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

// Two F32 rows of three, a BF16 pair, a lone F16 value, two I64 values and one F8 value.
inline std::string tiny_safetensors() {
    const std::string header = R"({"__metadata__":{"format":"pt"},)"
                               R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                               R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]},)"
                               R"("c":{"dtype":"F16","shape":[],"data_offsets":[28,30]},)"
                               R"("d":{"dtype":"I64","shape":[1,2],"data_offsets":[30,46]},)"
                               R"("e":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[46,47]},)"
                               R"("none":{"dtype":"F32","shape":[0,5],"data_offsets":[47,47]}})";
    return raw_safetensors(header, raw_values<float>({0, 1, 2, 3, 4, 5}) +
                                       raw_values<std::uint16_t>({0x3f80, 0xc000, 0x3c00}) +
                                       raw_values<std::int64_t>({-5, std::int64_t{1} << 40}) + "x");
}

}  // namespace strata::test
