#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "quant/type.h"

namespace strata::quant {
namespace {

constexpr std::uint32_t kIdsMax = 64;

std::string line_of(const TypeInfo& format) {
    char bits[32];
    std::snprintf(bits, sizeof(bits), "%.6g", 8.0 * format.block_bytes / format.block);
    const auto yes = [](bool is) { return is ? " yes |" : " no |"; };
    return "| " + std::string(format.name) + " | " +
           std::to_string(static_cast<std::uint32_t>(format.type)) + " | " + bits + " | " +
           std::to_string(format.block) + " | " + std::to_string(format.block_bytes) + " |" +
           yes(format.encode != nullptr) + yes(format.encode_weighted != nullptr) + "\n";
}

TEST(FormatsPage, lists_each_format_as_the_table_of_formats_has_it) {
    std::ifstream in(STRATA_FORMATS_PAGE);
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    std::size_t count = 0;
    for (std::uint32_t id = 0; id < kIdsMax; ++id) {
        const TypeInfo* format = find_type(id);
        if (format == nullptr) continue;
        ++count;
        EXPECT_NE(page.find(line_of(*format)), std::string::npos)
            << "docs/formats.md lacks the line\n"
            << line_of(*format);
    }
    std::size_t lines = 0;
    for (std::size_t at = page.find("\n| "); at != std::string::npos;
         at = page.find("\n| ", at + 1)) {
        ++lines;
    }
    EXPECT_EQ(lines, count + 17 + 2) << "rows of formats and of errors, and two heads";
}

}  // namespace
}  // namespace strata::quant
