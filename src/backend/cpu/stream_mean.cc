// Bounded by memory: reads the residual once.
#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/streams.h"
#include "base/check.h"

namespace strata::cpu {
namespace {

// mean[i] = share * the sum over the streams of from[i] + scale * out[i]; without `scales` of
// from[i].
struct MeanRow {
    template <typename V>
    STRATA_INLINE static void run(const float* from, const float* scales, const float* out,
                                  int streams, std::int64_t width, float share, float* mean) {
        using One = float __attribute__((vector_size(4)));
        std::int64_t i = 0;
        for (; i + kVectorWidth<V> <= width; i += kVectorWidth<V>) {
            add<V>(from, scales, out, streams, width, i, share, mean);
        }
        for (; i < width; ++i) add<One>(from, scales, out, streams, width, i, share, mean);
    }

  private:
    // Written by vectors: the compiler makes none of a loop with another inside.
    template <typename V>
    STRATA_INLINE static void add(const float* from, const float* scales, const float* out,
                                  int streams, std::int64_t width, std::int64_t i, float share,
                                  float* mean) {
        V block{};
        if (scales != nullptr) load_vector(out + i, block);
        V sum{};
        for (int s = 0; s < streams; ++s) {
            V stream;
            load_vector(from + s * width + i, stream);
            sum += scales == nullptr ? stream : stream + scales[s] * block;
        }
        store_vector(sum * share, mean + i);
    }
};

}  // namespace

void stream_mean(const op::StreamMean& args, device::Queue& queue) {
    Queue& own = begin_op(queue);
    const std::int64_t width = args.mean.cols;
    const bool inject = !args.block_out.empty();
    STRATA_CHECK(args.residual.rows == args.mean.rows);
    STRATA_CHECK(args.residual.cols == args.streams * width);
    STRATA_CHECK(
        block_fits(args.block_out, args.block_inject, args.mean.rows, args.streams, width));
    const float share = 1.0f / static_cast<float>(args.streams);
    const std::int64_t first = args.mean_row_at == nullptr ? 0 : *args.mean_row_at;
    own.split(args.mean.rows, args.residual.cols, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            run_kernel<MeanRow>(own.instructions(), args.residual.row(t),
                                inject ? args.block_inject.row(t) : nullptr,
                                inject ? args.block_out.row(t) : nullptr, args.streams, width,
                                share, args.mean.data + (first + t) * args.stride());
        }
    });
}

}  // namespace strata::cpu
