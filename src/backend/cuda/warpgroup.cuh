// Products that four warps make together: 64 rows of a, which lie in their registers or in shared
// memory, with rows of b in shared memory, which a multiprocessor reads once for all four. Chips of
// 9.0 have the instructions, in code for exactly them; on the host the same sums are made in plain
// code, and other chips have other kernels.
#pragma once

#include "backend/cuda/tensor_core.cuh"

namespace strata::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STRATA_WARPGROUPS 1
#else
#define STRATA_WARPGROUPS 0
#endif

// Whether kernels of products of warpgroups have a body in this code.
#if defined(__CUDACC__) && !STRATA_WARPGROUPS
inline constexpr bool kWarpgroupsRun = false;
#else
inline constexpr bool kWarpgroupsRun = true;
#endif

// Whether what they do needs no other kernel here.
inline constexpr bool kWarpgroupsAlone = STRATA_WARPGROUPS == 1;

inline constexpr int kWarpgroup = 128;
inline constexpr int kWarpgroupRows = 64;

// b in shared memory: rows of 64 values of 16 bits, kPanelRowBytes each, one after another, their
// pieces of 16 bytes as panel_at() places them. A panel is aligned to 1024.
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kPanelColumns = kPanelRowBytes / 2;
__device__ inline int panel_at(int row, int piece) {
    return row * kPanelRowBytes + (piece ^ (row & 7)) * 16;
}

// Dynamic shared memory, aligned as panels are.
__device__ inline std::byte* shared_panels() {
#ifdef __CUDACC__
    extern __shared__ __align__(1024) unsigned char strata_panels[];
    return reinterpret_cast<std::byte*>(strata_panels);
#else
    return shared_bytes();
#endif
}

// Before products read what this thread copied to shared memory, and a barrier.
__device__ inline void show_copies_to_products() {
#if STRATA_WARPGROUPS
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Before the first of some products: what this warpgroup's registers hold is for them.
__device__ inline void begin_products() {
#if STRATA_WARPGROUPS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Ends a group of products.
__device__ inline void commit_products() {
#if STRATA_WARPGROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until all but the last kPending groups are made.
template <int kPending>
__device__ inline void wait_products() {
#if STRATA_WARPGROUPS
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

// The same address, of which the compiler knows no more: sums with it are one instruction.
__device__ inline const std::byte* as_it_is(const std::byte* at) {
#ifdef __CUDACC__
    asm("" : "+l"(at));
#endif
    return at;
}

// A panel as products name it: its rows are 128 bytes apart in groups of eight, their pieces
// swizzled over these bytes.
class Panel {
  public:
#if STRATA_WARPGROUPS
    __device__ explicit Panel(const std::byte* at) {
        const auto address = static_cast<unsigned>(__cvta_generic_to_shared(at));
        constexpr std::uint64_t kGroupBytes = 8 * kPanelRowBytes;
        words_ = std::uint64_t{address >> 4} | std::uint64_t{1} << 16 | (kGroupBytes >> 4) << 32 |
                 std::uint64_t{1} << 62;
    }
    // Shared memory ends far below what would carry.
    __device__ std::uint64_t words(int bytes) const { return words_ + bytes / 16; }

  private:
    std::uint64_t words_;
#else
    __device__ explicit Panel(const std::byte* at) : at_(at) {}
    // Columns `bytes` / 2 .. of this panel and those behind it.
    __device__ const std::byte* at(int bytes) const { return at_ + bytes; }

  private:
    const std::byte* at_;
#endif
};

namespace detail {

#if STRATA_WARPGROUPS
#define STRATA_EIGHT(j) "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
#define STRATA_SUMS_16 STRATA_EIGHT(0), STRATA_EIGHT(1)
#define STRATA_SUMS_32 STRATA_SUMS_16, STRATA_EIGHT(2), STRATA_EIGHT(3)
#define STRATA_SUMS_48 STRATA_SUMS_32, STRATA_EIGHT(4), STRATA_EIGHT(5)
#define STRATA_SUMS_64 STRATA_SUMS_48, STRATA_EIGHT(6), STRATA_EIGHT(7)
#define STRATA_SUMS_80 STRATA_SUMS_64, STRATA_EIGHT(8), STRATA_EIGHT(9)
#define STRATA_SUMS_96 STRATA_SUMS_80, STRATA_EIGHT(10), STRATA_EIGHT(11)
#define STRATA_SUMS_128 \
    STRATA_SUMS_96, STRATA_EIGHT(12), STRATA_EIGHT(13), STRATA_EIGHT(14), STRATA_EIGHT(15)
#define STRATA_SUMS_192                                                                      \
    STRATA_SUMS_128, STRATA_EIGHT(16), STRATA_EIGHT(17), STRATA_EIGHT(18), STRATA_EIGHT(19), \
        STRATA_EIGHT(20), STRATA_EIGHT(21), STRATA_EIGHT(22), STRATA_EIGHT(23)
#define STRATA_SUMS_256                                                                      \
    STRATA_SUMS_192, STRATA_EIGHT(24), STRATA_EIGHT(25), STRATA_EIGHT(26), STRATA_EIGHT(27), \
        STRATA_EIGHT(28), STRATA_EIGHT(29), STRATA_EIGHT(30), STRATA_EIGHT(31)
#define STRATA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define STRATA_NAMES_32 STRATA_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define STRATA_NAMES_48 STRATA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define STRATA_NAMES_64 STRATA_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define STRATA_NAMES_80 STRATA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define STRATA_NAMES_96 STRATA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define STRATA_NAMES_128 \
    STRATA_NAMES_96      \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define STRATA_NAMES_256                                                                       \
    STRATA_NAMES_128                                                                           \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"         \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"         \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
    "%111"                                                                                     \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "   \
    "%126, %127"
// The names after the sums: four of a, the panel, whether sums are added to.
#define STRATA_PRODUCT(n, a0, a1, a2, a3, name, adds)                                        \
    asm volatile(                                                                            \
        "{ .reg .pred p; setp.ne.b32 p, %" #adds ", 0; wgmma.mma_async.sync.aligned.m64n" #n \
        "k16.f32.bf16.bf16 {" STRATA_NAMES_##n "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3     \
                                               "}, %" #name ", p, 1, 1, 0; }"                \
        : STRATA_SUMS_##n                                                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(panel.words(bytes)), "r"(adds_to))
// The same with both sides in shared memory, where the names after the sums are those of a, b and
// whether sums are added to.
#define STRATA_PANELS(n, name_a, name_b, adds)                                                   \
    asm volatile(                                                                                \
        "{ .reg .pred p; setp.ne.b32 p, %" #adds ", 0; wgmma.mma_async.sync.aligned.m64n" #n     \
        "k16.f32.bf16.bf16 {" STRATA_NAMES_##n "}, %" #name_a ", %" #name_b ", p, 1, 1, 0, 0; }" \
        : STRATA_SUMS_##n                                                                        \
        : "l"(a.words(bytes)), "l"(b.words(bytes)), "r"(adds_to))
#else
// Of this warp's sixteen rows, in the order of columns.
template <int kRows>
__device__ inline void add_panel_plain(float (&sum)[kRows / 8][4], const std::uint32_t (&a)[4],
                                       const Panel& panel, int bytes, int adds_to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int j = 0; j < kRows / 8; ++j) {
        if (adds_to == 0) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0.0f;
        const auto pair = [&](int half) {
            const int whole = bytes / kPanelRowBytes * kPanelRowBytes;
            const int piece = bytes % kPanelRowBytes / 16 + half;
            const int at = panel_at(8 * j + lane / 4, piece) + lane % 4 * 4;
            return *reinterpret_cast<const std::uint32_t*>(panel.at(whole + at));
        };
        add_tile_plain<bfloat_to_float>(sum[j], a, pair(0), pair(1));
    }
}
#endif

}  // namespace detail

// sum[64 x kRows] += a[64 x 16] b[16 x kRows] of BF16, b the columns that begin `bytes` after the
// panel, of its first kRows rows. A lane of warp w holds of rows 16 w .. 16 w + 15 of a, and of the
// sums of each eight rows of b, what add_tile_bf16() says. The sums are there, and a may change,
// only once wait_products() says so. With `adds_to` 0 sums begin anew.
template <int kRows>
__device__ inline void add_panel_bf16(float (&sum)[kRows / 8][4], const std::uint32_t (&a)[4],
                                      const Panel& panel, int bytes, int adds_to) {
    static_assert(kRows % 16 == 0 && kRows <= 96);
#if STRATA_WARPGROUPS
    if constexpr (kRows == 16) STRATA_PRODUCT(16, 8, 9, 10, 11, 12, 13);
    if constexpr (kRows == 32) STRATA_PRODUCT(32, 16, 17, 18, 19, 20, 21);
    if constexpr (kRows == 48) STRATA_PRODUCT(48, 24, 25, 26, 27, 28, 29);
    if constexpr (kRows == 64) STRATA_PRODUCT(64, 32, 33, 34, 35, 36, 37);
    if constexpr (kRows == 80) STRATA_PRODUCT(80, 40, 41, 42, 43, 44, 45);
    if constexpr (kRows == 96) STRATA_PRODUCT(96, 48, 49, 50, 51, 52, 53);
#else
    detail::add_panel_plain<kRows>(sum, a, panel, bytes, adds_to);
#endif
}

// sum[64 x kCols] += a[64 x 16] b[16 x kCols] with a in a panel too, columns that begin `bytes`
// after both. As above in all else.
template <int kCols>
__device__ inline void multiply_panels(float (&sum)[kCols / 8][4], const Panel& a, const Panel& b,
                                       int bytes, int adds_to) {
    static_assert(kCols == 32 || kCols == 64 || kCols == 128 || kCols == 256);
#if STRATA_WARPGROUPS
    if constexpr (kCols == 32) STRATA_PANELS(32, 16, 17, 18);
    if constexpr (kCols == 64) STRATA_PANELS(64, 32, 33, 34);
    if constexpr (kCols == 128) STRATA_PANELS(128, 64, 65, 66);
    if constexpr (kCols == 256) STRATA_PANELS(256, 128, 129, 130);
#else
    const auto thread = static_cast<int>(threadIdx.x);
    const int row = thread % kWarpgroup / kWarp * 16 + thread % kWarp / 4;
    std::uint32_t left[4];
    for (int i = 0; i < 4; ++i) {
        const int at = panel_at(row + i % 2 * 8, bytes / 16 + i / 2) + thread % 4 * 4;
        left[i] = *reinterpret_cast<const std::uint32_t*>(a.at(at));
    }
    detail::add_panel_plain<kCols>(sum, left, b, bytes, adds_to);
#endif
}

// After wait_products<0>(), before the sums are read.
template <int kEights>
__device__ inline void take_sums(float (&sum)[kEights][4]) {
#if STRATA_WARPGROUPS
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sum[j][i])::"memory");
    }
#else
    static_cast<void>(sum);
#endif
}

}  // namespace strata::cuda
