// The number formats that tensors are stored in. A format is a file of its own (q8_0.cc, ...) that
// defines one TypeInfo, plus its line in the table of type.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata::quant {

// The values are GGUF's type ids.
enum class Type : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i64 = 27,
    iq1_m = 29,
    bf16 = 30,
    mxfp4 = 39,
    nvfp4 = 40,
    q2_0 = 42,
};
inline constexpr std::size_t kTypesMax = 43;  // above every number

struct IntegerForm;

// A row is stored as blocks of `block` values in `block_bytes` bytes each, little-endian. Rows need
// no alignment.
struct TypeInfo {
    Type type;
    std::string_view name;  // as GGUF tools print it: "Q8_0"
    int block;
    int block_bytes;
    // Both take n values, a multiple of `block`; out and in have n floats. Null where the format
    // has no such direction (I64 is no float; some formats are only read).
    void (*decode)(const std::byte* row, float* out, std::int64_t n);
    void (*encode)(const float* in, std::byte* row, std::int64_t n);
    // Encodes so that the sum of importance * (value - stored value)^2 is small; importance has n
    // values of 0 or more, in any unit. Null where the format has no use for it.
    void (*encode_weighted)(const float* in, const float* importance, std::byte* row,
                            std::int64_t n) = nullptr;
    // How blocks read as integers; null for formats without blocks.
    const IntegerForm* integers = nullptr;
};

// Null if this build has no such format.
const TypeInfo* find_type(std::uint32_t gguf_id);
const TypeInfo* find_type(std::string_view name);  // any case

const TypeInfo& info(Type type);

// The name of a GGUF type id, whether or not this build reads it ("IQ1_S"); "99 (unknown)" for an
// id that is not in the table of names.
std::string type_name(std::uint32_t gguf_id);

// "F32, F16, ...": what this build reads, for error messages.
std::string readable_types();

// Bytes of a row. Errors: the block does not divide `columns`; the size does not fit 64 bits.
Result<std::uint64_t> row_bytes(Type type, std::uint64_t columns);

}  // namespace strata::quant
