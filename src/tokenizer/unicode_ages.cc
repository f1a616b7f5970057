#include "tokenizer/unicode_ages.h"

#include <algorithm>
#include <iterator>

namespace strata {

namespace {

struct Range {
    char32_t first;
    char32_t last;
    CharClass kind = CharClass::mark;
};

// UnicodeData.txt of 16.0 less that of 15.0, general categories L, M and N. Ascending.
constexpr Range kSince15[] = {
    {0x0897, 0x0897, CharClass::mark},     {0x1C89, 0x1C8A, CharClass::letter},
    {0xA7CB, 0xA7CD, CharClass::letter},   {0xA7DA, 0xA7DC, CharClass::letter},
    {0x105C0, 0x105F3, CharClass::letter}, {0x10D40, 0x10D49, CharClass::number},
    {0x10D4A, 0x10D65, CharClass::letter}, {0x10D69, 0x10D6D, CharClass::mark},
    {0x10D6F, 0x10D85, CharClass::letter}, {0x10EC2, 0x10EC4, CharClass::letter},
    {0x10EFC, 0x10EFC, CharClass::mark},   {0x11380, 0x11389, CharClass::letter},
    {0x1138B, 0x1138B, CharClass::letter}, {0x1138E, 0x1138E, CharClass::letter},
    {0x11390, 0x113B5, CharClass::letter}, {0x113B7, 0x113B7, CharClass::letter},
    {0x113B8, 0x113C0, CharClass::mark},   {0x113C2, 0x113C2, CharClass::mark},
    {0x113C5, 0x113C5, CharClass::mark},   {0x113C7, 0x113CA, CharClass::mark},
    {0x113CC, 0x113D0, CharClass::mark},   {0x113D1, 0x113D1, CharClass::letter},
    {0x113D2, 0x113D2, CharClass::mark},   {0x113D3, 0x113D3, CharClass::letter},
    {0x113E1, 0x113E2, CharClass::mark},   {0x116D0, 0x116E3, CharClass::number},
    {0x11BC0, 0x11BE0, CharClass::letter}, {0x11BF0, 0x11BF9, CharClass::number},
    {0x11F5A, 0x11F5A, CharClass::mark},   {0x13460, 0x143FA, CharClass::letter},
    {0x16100, 0x1611D, CharClass::letter}, {0x1611E, 0x1612F, CharClass::mark},
    {0x16130, 0x16139, CharClass::number}, {0x16D40, 0x16D6C, CharClass::letter},
    {0x16D70, 0x16D79, CharClass::number}, {0x18CFF, 0x18CFF, CharClass::letter},
    {0x1CCF0, 0x1CCF9, CharClass::number}, {0x1E5D0, 0x1E5ED, CharClass::letter},
    {0x1E5EE, 0x1E5EF, CharClass::mark},   {0x1E5F0, 0x1E5F0, CharClass::letter},
    {0x1E5F1, 0x1E5FA, CharClass::number}, {0x2EBF0, 0x2EE5D, CharClass::letter},
};

// UnicodeData.txt, combining class not 0, less that of 9.0; and U+11930, U+11935, U+11938.
// Ascending.
constexpr Range kMarksSince9[] = {
    {0x05C8, 0x05C9},   {0x07FD, 0x07FD},   {0x0897, 0x089F},   {0x08CA, 0x08D3},
    {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},
    {0x1715, 0x1715},   {0x1ABF, 0x1AF0},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10ECB, 0x10ECF},
    {0x10EF0, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x113CE, 0x113D0}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1612F, 0x1612F}, {0x16FF0, 0x16FF1},
    {0x1D127, 0x1D128}, {0x1D250, 0x1D252}, {0x1D25B, 0x1D25C}, {0x1D25F, 0x1D25F},
    {0x1D280, 0x1D281}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3},
    {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}};

template <std::size_t kCount>
const Range* find_range(const Range (&ranges)[kCount], char32_t code) {
    const Range* range = std::lower_bound(
        std::begin(ranges), std::end(ranges), code,
        [](const Range& candidate, char32_t value) { return candidate.last < value; });
    return range != std::end(ranges) && range->first <= code ? range : nullptr;
}

}  // namespace

CharClass late_class(char32_t code) {
    const Range* range = find_range(kSince15, code);
    return range == nullptr ? CharClass::other : range->kind;
}

bool is_late_mark(char32_t code) { return find_range(kMarksSince9, code) != nullptr; }

}  // namespace strata
