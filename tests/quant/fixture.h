// Files of tests/quant/data.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace strata::quant {

// The numbers in data/<name in lower case>.<part>.
template <typename T>
std::vector<T> fixture(std::string_view name, std::string_view part) {
    std::string path = STRATA_TEST_DATA "/";
    for (const char c : name) path += static_cast<char>(std::tolower(c));
    std::ifstream in(path + "." + std::string(part), std::ios::binary);
    const std::vector<char> raw{std::istreambuf_iterator<char>(in), {}};
    EXPECT_FALSE(raw.empty()) << path;
    std::vector<T> values(raw.size() / sizeof(T));
    std::memcpy(values.data(), raw.data(), raw.size());
    return values;
}

}  // namespace strata::quant
