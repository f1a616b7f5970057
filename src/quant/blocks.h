// What formats of blocks share: the loops over a row's blocks, and packed fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata::quant {

// The values of a block in the K and IQ formats.
inline constexpr int kSuperBlock = 256;

// A TypeInfo's decode from a function that decodes one block.
template <typename Block, int kValues, void (*kDecodeBlock)(const Block& block, float* out)>
void decode_blocks(const std::byte* row, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kValues, row += sizeof(Block)) {
        Block block;
        std::memcpy(&block, row, sizeof(Block));
        kDecodeBlock(block, out + i);
    }
}

inline std::uint32_t load_u32(const std::uint8_t* bytes) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
}

inline std::uint32_t load_u16(const std::uint8_t* bytes) {
    std::uint16_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
}

// Field `index` of those that lie `kBits` each in bytes, the first lowest.
template <int kBits, typename Bytes>
int packed_field(const Bytes& bytes, int index) {
    constexpr int kPerByte = 8 / kBits;
    return bytes[index / kPerByte] >> (index % kPerByte * kBits) & ((1 << kBits) - 1);
}

}  // namespace strata::quant
