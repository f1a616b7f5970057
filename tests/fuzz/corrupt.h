// Damage to files, the same on every run.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>
#include <string>

namespace strata::test {

// Changes 1 to 8 places of `bytes`: a bit, a byte, a 32- or 64-bit number that is extreme, a piece
// cut out, repeated, or copied over another.
inline std::string corrupted(std::string bytes, std::mt19937_64& random) {
    const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
    const auto put = [&](auto number) {
        if (bytes.size() < sizeof(number)) return;
        const char* raw = reinterpret_cast<const char*>(&number);
        bytes.replace(below(bytes.size() - sizeof(number) + 1), sizeof(number), raw,
                      sizeof(number));
    };
    constexpr std::uint64_t kExtremes[] = {0,
                                           1,
                                           std::uint64_t{1} << 31,
                                           (std::uint64_t{1} << 32) - 1,
                                           std::uint64_t{1} << 32,
                                           (std::uint64_t{1} << 42) + 1,
                                           std::uint64_t{1} << 63,
                                           ~std::uint64_t{0}};
    const std::size_t places = 1 + below(8);
    for (std::size_t i = 0; i < places && !bytes.empty(); ++i) {
        const std::size_t at = below(bytes.size());
        const std::size_t length = 1 + below(16);
        switch (below(7)) {
            case 0:
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
                break;
            case 1:
                bytes[at] = static_cast<char>(random());
                break;
            case 2:
                put(kExtremes[below(std::size(kExtremes))]);
                break;
            case 3:
                put(static_cast<std::uint32_t>(kExtremes[below(std::size(kExtremes))]));
                break;
            case 4:
                bytes.erase(at, length);
                break;
            case 5:
                bytes.insert(at, bytes.substr(at, length));
                break;
            default:
                bytes.replace(below(bytes.size()), length, bytes.substr(at, length));
        }
    }
    return bytes;
}

}  // namespace strata::test
