// Bounded by reading the rows three times a filter: each time a histogram of some more bits, in
// whole numbers, whose sums no order changes.
#include "backend/cuda/draw_filter.cuh"

#include "backend/cuda/launch.cuh"

namespace strata::cuda {
namespace {

constexpr int kLevels = 3;
constexpr int kBins = 2048;

// The lowest bit of the depth that a level tells.
__host__ __device__ constexpr int shift_of(int level) { return level == 0 ? 20 : 20 - 10 * level; }

__device__ unsigned bin_of(unsigned depth, int level) {
    return level == 0 ? depth >> shift_of(0) : depth >> shift_of(level) & 1023u;
}

// One filter: of each row `ends` searches, each with bins of its own.
struct Level {
    MatrixView<const float> scaled;
    const op::DrawRule* rule;
    Search* searches;     // [rows, ends]
    const Search* top_k;  // [rows], of a search for top-p after top-k
    Heap* bins;           // [rows, ends, kBins]
    int ends;
    int level;

    __device__ bool idle() const { return ends == 1 ? rule->top_k <= 0 : rule->top_p >= 1; }
};

// Adds to a sum in shared memory, whose atomic sums have 32 bits.
__device__ void add_shared(unsigned* low, unsigned* high, unsigned long long value) {
    const auto lower = static_cast<unsigned>(value);
    if (value == 0) return;
    const unsigned before = atomicAdd(low, lower);
    const auto upper = static_cast<unsigned>(value >> 32) + (before + lower < before ? 1u : 0u);
    if (upper != 0) atomicAdd(high, upper);
}

// Block (piece, row, end).
__global__ void __launch_bounds__(kLogitThreads) fill_bins(const __grid_constant__ Level args) {
    follow_earlier_kernels();
    __shared__ unsigned counts[kBins];
    __shared__ unsigned low[kBins];
    __shared__ unsigned high[kBins];
    if (args.idle()) return;
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t at = std::int64_t{blockIdx.y} * args.ends + blockIdx.z;
    for (int b = thread; b < kBins; b += kLogitThreads) {
        counts[b] = 0;
        low[b] = high[b] = 0;
    }
    __syncthreads();
    const unsigned known = args.level == 0 ? 0 : args.searches[at].depth;
    const float* row = args.scaled.row(blockIdx.y);
    for (int i = 0; i < kLogitsHeld; ++i) {
        const std::int64_t r = std::int64_t{blockIdx.x} * kPieceLogits + i * kLogitThreads + thread;
        if (r >= args.scaled.cols) continue;
        const float depth = fabsf(row[r]);
        const unsigned bits = __float_as_uint(depth);
        if (args.level > 0 && bits >> shift_of(args.level - 1) != known) continue;
        const unsigned bin = bin_of(bits, args.level);
        atomicAdd(&counts[bin], 1u);
        const float mass = expf(-depth) * kMassOne;
        add_shared(&low[bin], &high[bin], static_cast<unsigned long long>(mass));
    }
    __syncthreads();
    for (int b = thread; b < kBins; b += kLogitThreads) {
        if (counts[b] == 0) continue;
        Heap& to = args.bins[at * kBins + b];
        atomicAdd(&to.count, static_cast<unsigned long long>(counts[b]));
        atomicAdd(&to.mass, static_cast<unsigned long long>(high[b]) << 32 | low[b]);
    }
}

__device__ Heap operator+(const Heap& a, const Heap& b) {
    return {a.count + b.count, a.mass + b.mass};
}

// Tokens so near top-p's end are listed as not sure; the other half of what is allowed is for the
// rounding of exponentials to F32.
constexpr double kMargin = op::kFilterError / 2;

// What a search is for, of rows whose heap is `all`.
__device__ unsigned long long goal_of(const Level& args, const Heap& all) {
    if (args.ends == 1) {
        const auto wanted = static_cast<unsigned long long>(args.rule->top_k);
        return wanted < all.count ? wanted : all.count;
    }
    unsigned long long mass = all.mass;
    if (args.top_k != nullptr && args.rule->top_k > 0) {
        const Search& end = args.top_k[blockIdx.x];
        mass = end.before.mass + (end.goal - end.before.count) * (end.at.mass / end.at.count);
    }
    const bool most = blockIdx.y == 1;
    const double error = most ? kMargin : -kMargin;
    const double goal = args.rule->top_p * (1.0 + error) * static_cast<double>(mass);
    return goal < 1.0 ? 1 : static_cast<unsigned long long>(goal);
}

// Block (row, end): finds the bin in which the goal is reached, and empties all.
__global__ void __launch_bounds__(kLogitThreads) find_bin(const __grid_constant__ Level args) {
    follow_earlier_kernels();
    constexpr int kOwn = kBins / kLogitThreads;
    __shared__ Heap of_thread[kLogitThreads];
    __shared__ Heap of_warp[kLogitWarps];
    __shared__ Heap bins[kBins];
    if (args.idle()) return;
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t at = std::int64_t{blockIdx.x} * args.ends + blockIdx.y;
    for (int b = thread; b < kBins; b += kLogitThreads) {
        bins[b] = args.bins[at * kBins + b];
        args.bins[at * kBins + b] = {0, 0};
    }
    __syncthreads();
    Heap own{0, 0};
    for (int b = 0; b < kOwn; ++b) own = own + bins[thread * kOwn + b];
    of_thread[thread] = own;
    __syncthreads();
    if (thread < kLogitWarps) {
        Heap sum{0, 0};
        for (int i = 0; i < kWarp; ++i) sum = sum + of_thread[thread * kWarp + i];
        of_warp[thread] = sum;
    }
    __syncthreads();
    if (thread != 0) return;
    Search& search = args.searches[at];
    Heap all{0, 0};
    for (const Heap& one : of_warp) all = all + one;
    if (args.level == 0) search = {0, goal_of(args, all), {0, 0}, {0, 0}};
    if (search.depth == kDepthMost) return;
    if (args.level == 0 && args.ends == 2 && search.goal >= all.mass) {
        search.depth = kDepthMost;  // of what is left no sum tells
        search.at = {1, 0};
        return;
    }
    const auto reaches = [&](const Heap& next) {
        const Heap sum = search.before + next;
        return (args.ends == 1 ? sum.count : sum.mass) >= search.goal;
    };
    int bin = 0;
    int warp = 0;
    for (; warp + 1 < kLogitWarps && !reaches(of_warp[warp]); ++warp) {
        search.before = search.before + of_warp[warp];
    }
    int of = warp * kWarp;
    for (; of + 1 < (warp + 1) * kWarp && !reaches(of_thread[of]); ++of) {
        search.before = search.before + of_thread[of];
    }
    for (bin = of * kOwn; bin + 1 < (of + 1) * kOwn && !reaches(bins[bin]); ++bin) {
        search.before = search.before + bins[bin];
    }
    search.at = bins[bin];
    const int bits = args.level == 0 ? 0 : 10;
    search.depth = search.depth << bits | static_cast<unsigned>(bin);
}

struct EmptyBins {
    Heap* bins;
    __device__ void operator()(std::int64_t i) const { bins[i] = {0, 0}; }
};

}  // namespace

Filters find_filters(Queue& queue, const op::Draw& args, MatrixView<const float> scaled) {
    const std::int64_t rows = scaled.rows;
    Heap* bins = queue.take<Heap>(rows * 2 * kBins);
    for_each(queue, rows * 2 * kBins, EmptyBins{bins});
    const auto pieces = static_cast<unsigned>((scaled.cols + kPieceLogits - 1) / kPieceLogits);
    const auto blocks = static_cast<unsigned>(rows);
    Filters filters{nullptr, nullptr};
    const auto search = [&](int ends) {
        auto* searches = queue.take<Search>(rows * ends);
        const auto count = static_cast<unsigned>(ends);
        for (int level = 0; level < kLevels; ++level) {
            const Level own{scaled, args.rule, searches, filters.top_k, bins, ends, level};
            launch_dependent(queue, {dim3(pieces, blocks, count), kLogitThreads}, fill_bins, own);
            launch_dependent(queue, {dim3(blocks, count), kLogitThreads}, find_bin, own);
        }
        return searches;
    };
    if ((args.filters & op::kFilterTopK) != 0) filters.top_k = search(1);
    if ((args.filters & op::kFilterTopP) != 0) filters.top_p = search(2);
    return filters;
}

}  // namespace strata::cuda
