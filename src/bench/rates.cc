#include "bench/rates.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata::bench {
namespace {

// Independent sums: enough to hide the latency of an instruction on two ports.
constexpr int kSums = 12;

std::int64_t scalar_f32(std::int64_t rounds) {
    float sums[kSums] = {};
    const volatile float seed = 1.0f;
    const float a = seed;
    for (std::int64_t i = 0; i < rounds; ++i) {
        for (float& sum : sums) sum += a * sum;
    }
    float all = 0;
    for (const float sum : sums) all += sum;
    return static_cast<std::int64_t>(all);
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) std::int64_t avx2_f32(std::int64_t rounds) {
    __m256 sums[kSums];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    const __m256 a = _mm256_set1_ps(static_cast<float>(rounds & 1));
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, a, sum);
    }
    for (int k = 1; k < kSums; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
    return static_cast<std::int64_t>(_mm256_cvtss_f32(sums[0]));
}

// As products of 8-bit numbers are summed where no instruction does it in one.
__attribute__((target("avx2"))) std::int64_t avx2_i8(std::int64_t rounds) {
    __m256i sums[kSums];
    for (__m256i& sum : sums) sum = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i b = _mm256_set1_epi8(static_cast<char>(rounds & 1));
    for (std::int64_t i = 0; i < rounds; ++i) {
        const __m256i a = _mm256_set1_epi32(static_cast<int>(i));
#pragma GCC unroll 12
        for (__m256i& sum : sums) {
            const __m256i pairs = _mm256_maddubs_epi16(_mm256_xor_si256(a, sum), b);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int k = 1; k < kSums; ++k) sums[0] = _mm256_add_epi32(sums[0], sums[k]);
    return _mm256_extract_epi32(sums[0], 0);
}

__attribute__((target("avx512f"))) std::int64_t avx512_f32(std::int64_t rounds) {
    __m512 sums[kSums];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const __m512 a = _mm512_set1_ps(static_cast<float>(rounds & 1));
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, a, sum);
    }
    for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
    return static_cast<std::int64_t>(_mm512_cvtss_f32(sums[0]));
}

__attribute__((target("avx512f,avx512vnni"))) std::int64_t avx512_i8(std::int64_t rounds) {
    __m512i sums[kSums];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    const __m512i a = _mm512_set1_epi32(static_cast<int>(rounds));
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, a);
    }
    for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_epi32(sums[0], sums[k]);
    std::int32_t lanes[16];
    _mm512_storeu_si512(lanes, sums[0]);
    return lanes[0];
}

__attribute__((target("avx512f,avx512bf16"))) std::int64_t avx512_bf16(std::int64_t rounds) {
    __m512 sums[kSums];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const __m512 small = _mm512_set1_ps(static_cast<float>(rounds & 1));
    const __m512bh a = _mm512_cvtne2ps_pbh(small, small);
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
    }
    for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
    return static_cast<std::int64_t>(_mm512_cvtss_f32(sums[0]));
}

__attribute__((target("avx512f"))) std::uint64_t avx512_read(const std::byte* data,
                                                             std::int64_t bytes, int streams) {
    constexpr int kLines = 8;
    __m512i sums[kLines];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    const std::int64_t part = bytes / streams;
    for (std::int64_t at = 0; at < part; at += kLines * 64) {
        for (int stream = 0; stream < streams; ++stream) {
            const std::byte* from = data + stream * part + at;
#pragma GCC unroll 8
            for (int k = 0; k < kLines; ++k) {
                sums[k] = _mm512_xor_si512(sums[k], _mm512_loadu_si512(from + k * 64));
            }
        }
    }
    for (int k = 1; k < kLines; ++k) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
    std::uint64_t lanes[8];
    _mm512_storeu_si512(lanes, sums[0]);
    return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ lanes[4] ^ lanes[5] ^ lanes[6] ^ lanes[7];
}

#endif

std::uint64_t plain_read(const std::byte* data, std::int64_t bytes, int streams) {
    std::uint64_t sums[8] = {};
    const std::int64_t part = bytes / streams;
    for (std::int64_t at = 0; at < part; at += 64) {
        for (int stream = 0; stream < streams; ++stream) {
            std::uint64_t line[8];
            std::memcpy(line, data + stream * part + at, sizeof line);
            for (int k = 0; k < 8; ++k) sums[k] ^= line[k];
        }
    }
    for (int k = 1; k < 8; ++k) sums[0] ^= sums[k];
    return sums[0];
}

}  // namespace

MultiplyLoop f32_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return {avx512_f32, kSums * 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return {avx2_f32, kSums * 8};
    }
#endif
    return {scalar_f32, kSums};
}

MultiplyLoop bf16_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) return {avx512_bf16, kSums * 32};
#endif
    return f32_loop();
}

MultiplyLoop i8_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni")) return {avx512_i8, kSums * 64};
    if (__builtin_cpu_supports("avx2")) return {avx2_i8, kSums * 32};
#endif
    return f32_loop();
}

std::uint64_t read_all(const std::byte* data, std::int64_t bytes, int streams) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return avx512_read(data, bytes, streams);
#endif
    return plain_read(data, bytes, streams);
}

}  // namespace strata::bench
