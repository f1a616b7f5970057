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
enum class Type : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, i64 = 27, bf16 = 30 };

// A row is stored as blocks of `block` values in `block_bytes` bytes each, little-endian. Rows need
// no alignment.
struct TypeInfo {
    Type type;
    std::string_view name;  // as GGUF tools print it: "Q8_0"
    int block;
    int block_bytes;
    // Both take n values, a multiple of `block`; out and in have n floats. Null where the format
    // has no such direction (I64 is no float).
    void (*decode)(const std::byte* row, float* out, std::int64_t n);
    void (*encode)(const float* in, std::byte* row, std::int64_t n);
};

// Null if this build has no such format.
const TypeInfo* find_type(std::uint32_t gguf_id);
const TypeInfo* find_type(std::string_view name);  // any case

const TypeInfo& info(Type type);

// The name of a GGUF type id, whether or not this build reads it ("IQ3_S"); "42 (unknown)" for an
// id that is not in the table of names.
std::string type_name(std::uint32_t gguf_id);

// "F32, F16, ...": what this build reads, for error messages.
std::string readable_types();

// Bytes of a row. Errors: the block does not divide `columns`; the size does not fit 64 bits.
Result<std::uint64_t> row_bytes(Type type, std::uint64_t columns);

}  // namespace strata::quant
