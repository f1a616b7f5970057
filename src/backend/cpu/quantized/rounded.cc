// Bounded by two passes over the rows, of which each product reads the result many times.
#include "backend/cpu/quantized/rounded.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace strata::cpu {
namespace {

constexpr int kLargestCode = 127;

// Rounds `n` values, at most 256 and a multiple of 32, to one scale. In loops that vectorize: the
// largest magnitude is the largest bit pattern without its sign, where NaN comes last; adding
// 1.5 * 2^23 rounds to an integer, ties to even.
[[gnu::always_inline]] inline float round_group(const float* x, int n, std::int8_t* codes) {
    constexpr float kRounder = 0x1.8p23f;
    std::int32_t largest = 0;
    for (int i = 0; i < n; ++i) {
        const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    constexpr std::int32_t kInfinity = 0x7f800000;
    const float magnitude = std::bit_cast<float>(largest);
    const float inverse = static_cast<float>(kLargestCode) / magnitude;
    if (largest >= kInfinity || std::bit_cast<std::int32_t>(inverse) >= kInfinity) {
        std::memset(codes, 0, static_cast<std::size_t>(n));
        return largest >= kInfinity ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    }
    for (int i = 0; i < n; ++i) {
        const float rounded = x[i] * inverse + kRounder;
        codes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(rounded) -
                                            std::bit_cast<std::int32_t>(kRounder));
    }
    return magnitude / static_cast<float>(kLargestCode);
}

[[gnu::always_inline]] inline int sum_codes(const std::int8_t* codes, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += codes[i];
    return sum;
}

[[gnu::always_inline]] inline void transpose(std::int8_t* codes) {
    std::int8_t from[16];
    std::memcpy(from, codes, sizeof(from));
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) codes[4 * j + i] = from[4 * i + j];
    }
}

// `n` values of one group of activations, in the form's groups and parts.
[[gnu::always_inline]] inline void round_values(const float* x, int n, bool transposed,
                                                const quant::IntegerForm& form, std::int8_t* codes,
                                                float* scales, std::int32_t* sums) {
    const float scale = round_group(x, n, codes);
    for (int g = 0; g < n / form.group; ++g) scales[g] = scale;
    const int parts = n / form.part;
    for (int p = 0; p < parts; ++p) {
        const int sum = sum_codes(codes + p * form.part, form.part);
        if (form.minima && form.has_parts()) {
            const auto half = static_cast<std::int16_t>(sum);
            std::memcpy(reinterpret_cast<std::byte*>(sums) + 2 * p, &half, sizeof(half));
        } else {
            sums[p] = form.minima ? sum : -form.offset * sum;
        }
    }
    if (!transposed) return;
    for (int i = 0; i < n; i += 16) transpose(codes + i);
}

[[gnu::always_inline]] inline void round_whole(const quant::IntegerForm& form,
                                               const RowParts& row) {
    const int together = std::max(form.group, 32);
    const int sums = together / form.part / (form.minima && form.has_parts() ? 2 : 1);
    for (std::int64_t i = 0; i < row.n; i += together) {
        const std::int64_t g = i / together;
        round_values(row.x + i, together, row.transposed, form, row.codes + i,
                     row.scales + i / form.group, row.sums + g * sums);
    }
}

void round_plain(const quant::IntegerForm& form, const RowParts& row) { round_whole(form, row); }

#if defined(__x86_64__)
[[gnu::target("avx2")]] void round_avx2(const quant::IntegerForm& form, const RowParts& row) {
    round_whole(form, row);
}
#endif

void round_with(Instructions instructions, const quant::IntegerForm& form, const RowParts& row) {
#if defined(__x86_64__)
    if (instructions == Instructions::avx512) return round_row_avx512(form, row);
    if (instructions == Instructions::avx2) return round_avx2(form, row);
#endif
    static_cast<void>(instructions);
    round_plain(form, row);
}

// Four items of four rows change places; `width` items lie between those of one row in `to`.
void interleave_four(const std::int32_t* const* rows, std::int64_t i, std::int64_t width,
                     std::int32_t* to) {
#if defined(__x86_64__)
    __m128i row[4];
    for (int r = 0; r < 4; ++r) {
        row[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + i));
    }
    const __m128i low0 = _mm_unpacklo_epi32(row[0], row[1]);
    const __m128i low1 = _mm_unpacklo_epi32(row[2], row[3]);
    const __m128i high0 = _mm_unpackhi_epi32(row[0], row[1]);
    const __m128i high1 = _mm_unpackhi_epi32(row[2], row[3]);
    const auto store = [&](std::int64_t at, __m128i four) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at * width), four);
    };
    store(i, _mm_unpacklo_epi64(low0, low1));
    store(i + 1, _mm_unpackhi_epi64(low0, low1));
    store(i + 2, _mm_unpacklo_epi64(high0, high1));
    store(i + 3, _mm_unpackhi_epi64(high0, high1));
#else
    for (std::int64_t j = i; j < i + 4; ++j) {
        for (int r = 0; r < 4; ++r) to[j * width + r] = rows[r][j];
    }
#endif
}

// Four items of two rows.
void interleave_two(const std::int32_t* const* rows, std::int64_t i, std::int64_t width,
                    std::int32_t* to) {
#if defined(__x86_64__)
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[0] + i));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[1] + i));
    const auto store = [&](std::int64_t at, __m128i two) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + at * width), two);
    };
    const __m128i low = _mm_unpacklo_epi32(first, second);
    const __m128i high = _mm_unpackhi_epi32(first, second);
    store(i, low);
    store(i + 1, _mm_unpackhi_epi64(low, low));
    store(i + 2, high);
    store(i + 3, _mm_unpackhi_epi64(high, high));
#else
    for (std::int64_t j = i; j < i + 4; ++j) {
        for (int r = 0; r < 2; ++r) to[j * width + r] = rows[r][j];
    }
#endif
}

// to[i * width + r] = item i of row r.
void interleave(const std::int32_t* from, std::int64_t items, const std::int32_t* at,
                std::int64_t first, int width, std::int32_t* to) {
    const std::int32_t* rows[kTileRows];
    for (int r = 0; r < width; ++r) {
        rows[r] = from + (at == nullptr ? first + r : at[first + r]) * items;
    }
    int r = 0;
    for (; r + 4 <= width; r += 4) {
        std::int64_t i = 0;
        for (; i + 4 <= items; i += 4) interleave_four(rows + r, i, width, to + r);
        for (; i < items; ++i) {
            for (int j = r; j < r + 4; ++j) to[i * width + j] = rows[j][i];
        }
    }
    for (; r + 2 <= width; r += 2) {
        std::int64_t i = 0;
        for (; i + 4 <= items; i += 4) interleave_two(rows + r, i, width, to + r);
        for (; i < items; ++i) {
            for (int j = r; j < r + 2; ++j) to[i * width + j] = rows[j][i];
        }
    }
    if (width == 1) {
        std::copy_n(rows[0], items, to);
    } else if (r < width) {
        for (std::int64_t i = 0; i < items; ++i) to[i * width + r] = rows[r][i];
    }
}

}  // namespace

Rounded take_rounded(Queue& queue, const quant::IntegerForm& form, std::int64_t rows,
                     std::int64_t cols) {
    Rounded rounded{.form = &form, .rows = rows, .cols = cols};
    rounded.codes = queue.take<std::int32_t>(rows * rounded.code_items());
    rounded.scales = queue.take<float>(rows * rounded.scale_items());
    rounded.sums = queue.take<std::int32_t>(rows * rounded.sum_items());
    return rounded;
}

void round_row(const float* x, std::int64_t before, std::int64_t n, bool transposed,
               Instructions instructions, const Rounded& to, std::int64_t row) {
    RowParts parts{
        .x = x,
        .n = to.cols,
        .transposed = transposed,
        .codes = reinterpret_cast<std::int8_t*>(to.codes + row * to.code_items()),
        .scales = to.scales + row * to.scale_items(),
        .sums = to.sums + row * to.sum_items(),
    };
    if (n == to.cols) return round_with(instructions, *to.form, parts);
    // A group at a time, so that no whole row is needed in between.
    const int together = std::max(to.form->group, 32);
    parts.n = together;
    for (std::int64_t at = 0; at < to.cols; at += together) {
        float group[quant::kSuperBlock] = {};
        const std::int64_t first = std::max(at, before);
        const std::int64_t last = std::min(at + together, before + n);
        for (std::int64_t i = first; i < last; ++i) group[i - at] = x[i - before];
        parts.x = group;
        round_with(instructions, *to.form, parts);
        parts.codes += together;
        parts.scales += together / to.form->group;
        parts.sums += to.sum_items() / (to.cols / together);
    }
}

void make_tiles(const Rounded& from, const std::int32_t* at, const Rounded& to, std::int64_t begin,
                std::int64_t end) {
    for (std::int64_t r = 0; r < std::min(end, to.rows);) {
        const int width = tile_rows(to.rows - r);
        if (r >= begin) {
            interleave(from.codes, to.code_items(), at, r, width, to.codes + r * to.code_items());
            interleave(reinterpret_cast<const std::int32_t*>(from.scales), to.scale_items(), at, r,
                       width, reinterpret_cast<std::int32_t*>(to.scales + r * to.scale_items()));
            interleave(from.sums, to.sum_items(), at, r, width, to.sums + r * to.sum_items());
        }
        r += width;
    }
}

Rounded round_rows(Queue& queue, MatrixView<const float> x, std::int64_t first_column,
                   quant::Type type) {
    const quant::TypeInfo& info = quant::info(type);
    const bool transposed = find_routine(type, queue.instructions()).transposed;
    const std::int64_t first = first_column / info.block * info.block;
    const std::int64_t last = (first_column + x.cols + info.block - 1) / info.block * info.block;
    const Rounded rows = take_rounded(queue, *info.integers, x.rows, last - first);
    constexpr std::int64_t kCost = 2;
    queue.split(x.rows, kCost * x.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            round_row(x.row(t), first_column - first, x.cols, transposed, queue.instructions(),
                      rows, t);
        }
    });
    if (x.rows == 1) return rows;
    const Rounded tiles = take_rounded(queue, *info.integers, x.rows, rows.cols);
    queue.split(x.rows, kCost * x.cols, [&](std::int64_t begin, std::int64_t end, int) {
        make_tiles(rows, nullptr, tiles, begin, end);
    });
    return tiles;
}

}  // namespace strata::cpu
