#include "tests/op/oracle/cache.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "quant/half.h"
#include "tests/support/rig.h"

namespace strata::test {
namespace {

template <typename T>
T read_at(const std::byte* bytes, std::int64_t index) {
    T value;
    std::memcpy(&value, bytes + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
}

template <typename T>
void write_at(std::byte* bytes, std::int64_t index, T value) {
    std::memcpy(bytes + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

void round_group(const float* x, std::int64_t n, std::byte* codes, std::byte* scale) {
    float most = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < n; ++i) {
        finite = finite && std::isfinite(x[i]);
        most = std::max(most, std::abs(x[i]));
    }
    const float factor = 127.0f / most;
    const float s = finite ? most / 127.0f : std::numeric_limits<float>::quiet_NaN();
    const bool rounds = finite && std::isfinite(factor);
    for (std::int64_t i = 0; i < n; ++i) {
        const double code = rounds ? std::nearbyint(double{x[i] * factor}) : 0.0;
        write_at(codes, i, static_cast<std::int8_t>(code));
    }
    write_at(scale, 0, quant::f32_to_f16(rounds || !finite ? s : 0.0f));
}

std::vector<std::byte> bytes_oracle(const op::CacheRow& shape, const std::vector<float>& values) {
    std::vector<std::byte> row(static_cast<std::size_t>(shape.bytes()), std::byte{0});
    for (std::int64_t g = 0; g < shape.heads; ++g) {
        for (std::int64_t i = 0; i < shape.groups(); ++i) {
            const std::int64_t first = g * shape.dim + i * 32;
            const std::int64_t scale = g * shape.groups() + i;
            round_group(values.data() + first, std::min<std::int64_t>(32, shape.dim - i * 32),
                        row.data() + first, row.data() + shape.scales_at() + 2 * scale);
        }
    }
    return row;
}

}  // namespace

std::string name_of(op::CacheType type) {
    if (type == op::CacheType::q8_0) return "q8_0";
    return type == op::CacheType::f16 ? "f16" : "f32";
}

std::vector<std::byte> cache_row_oracle(const op::CacheRow& shape,
                                        const std::vector<float>& values) {
    if (shape.type == op::CacheType::q8_0) return bytes_oracle(shape, values);
    std::vector<std::byte> row(static_cast<std::size_t>(shape.bytes()));
    for (std::int64_t i = 0; i < shape.heads * shape.dim; ++i) {
        if (shape.type == op::CacheType::f16) {
            write_at(row.data(), i, quant::f32_to_f16(values[i]));
        } else {
            write_at(row.data(), i, values[i]);
        }
    }
    return row;
}

std::vector<float> cached_values(const op::CacheRow& shape, const std::byte* bytes) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape.heads * shape.dim; ++i) {
        if (shape.type == op::CacheType::f16) {
            values.push_back(quant::f16_to_f32(read_at<std::uint16_t>(bytes, i)));
        } else if (shape.type == op::CacheType::f32) {
            values.push_back(read_at<float>(bytes, i));
        } else {
            const std::int64_t group = i / shape.dim * shape.groups() + i % shape.dim / 32;
            const auto scale = read_at<std::uint16_t>(bytes + shape.scales_at(), group);
            values.push_back(quant::f16_to_f32(scale) *
                             static_cast<float>(read_at<std::int8_t>(bytes, i)));
        }
    }
    return values;
}

bool holds_poison(const op::CacheRow& shape, const std::byte* bytes) {
    const std::int64_t n = shape.heads * shape.dim;
    if (shape.type == op::CacheType::f32) {
        for (std::int64_t i = 0; i < n; ++i) {
            if (is_poison(read_at<float>(bytes, i))) return true;
        }
        return false;
    }
    const bool plain = shape.type == op::CacheType::f16;
    const std::byte* halves = plain ? bytes : bytes + shape.scales_at();
    for (std::int64_t i = 0; i < (plain ? n : shape.heads * shape.groups()); ++i) {
        if (is_poison(read_at<std::uint16_t>(halves, i))) return true;
    }
    return false;
}

void expect_cached(const std::string& what, const op::CacheRow& shape,
                   const std::vector<float>& got, const Rows& want) {
    if (shape.type == op::CacheType::f32) {
        return expect_close(what, got, want, Tolerance::projection());
    }
    if (shape.type == op::CacheType::f16) return expect_close(what, got, want, Tolerance::half());
    Rows groups;
    for (const Row& row : want) {
        for (auto head = row.begin(); head != row.end(); head += shape.dim) {
            for (std::int64_t i = 0; i < shape.dim; i += 32) {
                groups.emplace_back(head + i, head + std::min<std::int64_t>(i + 32, shape.dim));
            }
        }
    }
    expect_close(what, got, groups, Tolerance::eight_bits());
}

}  // namespace strata::test
