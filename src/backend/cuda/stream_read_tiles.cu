// Which reads go by tiles, and what they work on.
#include "backend/cuda/stream_read_tiles.cuh"

#include <limits>

#include "backend/cuda/stream_read.h"

namespace strata::cuda {
namespace {

int slices_of(std::int64_t width) {
    return static_cast<int>((width + tiles::kSliceColumns - 1) / tiles::kSliceColumns);
}

bool is_tiles(const op::Weight& weight) {
    return weight.type == quant::Type::bf16 && weight.cols % tiles::kEight == 0 &&
           weight.factor == 1.0f && weight.row_bytes == weight.cols * 2 &&
           reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
}

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

bool reads_streams_by_tiles(const op::StreamRead& args, const Queue& queue) {
    constexpr std::int64_t kValuesMax = std::numeric_limits<int>::max();
    return queue.has_tensor_cores() && args.residual.size() <= kValuesMax &&
           args.streams <= tiles::kStreamsMax && args.x.cols % tiles::kEight == 0 &&
           args.streams * slices_of(args.x.cols) <= tiles::kSlicesMax &&
           args.down.rows <= tiles::kLowMax && is_tiles(args.down) && is_tiles(args.up) &&
           (args.inject_weight.empty() || is_tiles(args.inject_weight)) &&
           is_aligned(args.residual.data) && is_aligned(args.block_out.data) &&
           is_aligned(args.norm);
}

void stream_read_tiles(const op::StreamRead& args, Queue& queue) {
    const auto products = static_cast<int>(args.down.rows + args.inject_weight.rows);
    const int slices = slices_of(args.x.cols);
    const std::int64_t parts = args.x.rows * args.streams * slices;
    const std::int64_t stride =
        (products + tiles::kTileRows - 1) / tiles::kTileRows * tiles::kTileRows;
    const tiles::Tiled read{.residual = args.residual.data,
                            .block_out = args.block_out.data,
                            .block_inject = args.block_inject.data,
                            .norm = args.norm,
                            .down = args.down.data,
                            .up = args.up.data,
                            .inject_weight = args.inject_weight.data,
                            .x = args.x.data,
                            .inject = args.inject.data,
                            .partial = queue.take<float>(parts * stride),
                            .squares = queue.take<float>(parts),
                            .inject_from = queue.take<float>(args.x.rows * args.streams),
                            .rows = static_cast<int>(args.x.rows),
                            .width = static_cast<int>(args.x.cols),
                            .low = static_cast<int>(args.down.rows),
                            .streams = args.streams,
                            .slices = slices,
                            .products = products,
                            .epsilon = args.epsilon,
                            .share = 1.0f / static_cast<float>(args.streams)};
    tiles::multiply_slices(read, queue);
    tiles::collapse(read, queue);
}

}  // namespace strata::cuda
