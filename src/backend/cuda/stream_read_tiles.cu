// Which reads go by tiles, and what they work on.
#include "backend/cuda/stream_read_tiles.cuh"

#include <limits>

#include "backend/cuda/stream_read.h"

namespace strata::cuda {
namespace {

int slices_of(std::int64_t width) {
    return static_cast<int>((width + tiles::kSliceColumns - 1) / tiles::kSliceColumns);
}

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

// Whether rows lie as the launches read them: in Q8_0 those of down begin where a copy of 16 bytes
// may, those of up where a word may.
bool is_tiles(const op::Weight& weight, quant::Type type, std::int64_t divisor) {
    const quant::TypeInfo& format = quant::info(type);
    return weight.type == type && weight.factor == 1.0f && weight.cols % divisor == 0 &&
           weight.row_bytes == weight.cols / format.block * format.block_bytes &&
           is_aligned(weight.data);
}

// What the columns of down and of up are multiples of, and the width of a stream.
struct Divisors {
    std::int64_t down;
    std::int64_t up;
    std::int64_t width;
};
constexpr Divisors kBfloats{tiles::kEight, tiles::kEight, tiles::kEight};
constexpr Divisors kCodes{8 * tiles::kSpan, 2 * tiles::kSpan, tiles::kSpan};

bool are_tiles(const op::StreamRead& args) {
    const quant::Type type = args.down.type;
    if (type != quant::Type::bf16 && type != quant::Type::q8_0) return false;
    const Divisors& divisors = type == quant::Type::bf16 ? kBfloats : kCodes;
    return args.x.cols % divisors.width == 0 && is_tiles(args.down, type, divisors.down) &&
           is_tiles(args.up, type, divisors.up) &&
           (args.inject_weight.empty() || is_tiles(args.inject_weight, type, divisors.down));
}

}  // namespace

bool reads_streams_by_tiles(const op::StreamRead& args, const Queue& queue) {
    constexpr std::int64_t kValuesMax = std::numeric_limits<int>::max();
    return queue.has_tensor_cores() && args.residual.size() <= kValuesMax &&
           args.streams <= tiles::kStreamsMax &&
           args.streams * slices_of(args.x.cols) <= tiles::kSlicesMax &&
           args.down.rows <= tiles::kLowMax && are_tiles(args) && is_aligned(args.residual.data) &&
           is_aligned(args.block_out.data) && is_aligned(args.norm);
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
    tiles::multiply_slices(read, args.down.type, queue);
    tiles::collapse(read, args.down.type, queue);
}

}  // namespace strata::cuda
