// Which reads go by tiles, and what they work on.
#include "backend/cuda/stream_read_tiles.cuh"

#include <limits>
#include <numeric>

#include "backend/cuda/blocks.h"
#include "backend/cuda/stream_read.h"

namespace strata::cuda {
namespace {

int slices_of(std::int64_t width) {
    return static_cast<int>((width + tiles::kSliceColumns - 1) / tiles::kSliceColumns);
}

constexpr int kCopyBytes = 16;  // what a load or a copy brings, and begins at a multiple of
constexpr int kWordBytes = 4;

bool is_aligned(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % kCopyBytes == 0;
}

// Whether rows of `weight` lie as the launches read them, and each where a read may begin.
bool has_rows_of(const op::Weight& weight, quant::Type type, std::int64_t divisor) {
    const quant::TypeInfo& format = quant::info(type);
    return weight.type == type && weight.factor == 1.0f && weight.cols % divisor == 0 &&
           weight.row_bytes == weight.cols / format.block * format.block_bytes &&
           is_aligned(weight.data);
}

// The columns of the shortest row of blocks of `block_bytes` whose bytes are a multiple of `bytes`.
constexpr std::int64_t columns_of_rows(int block_bytes, int bytes) {
    return tiles::kSpan * std::lcm(block_bytes, bytes) / block_bytes;
}

// What the columns of down and of up are multiples of, and the width of a stream.
struct ColumnDivisors {
    std::int64_t down;
    std::int64_t up;
    std::int64_t width;
};
constexpr ColumnDivisors kBfloatColumns{tiles::kEight, tiles::kEight, tiles::kEight};
static_assert(tiles::kEight * sizeof(std::uint16_t) == kCopyBytes);

// Rows of down are copied; those of up are read by words, and copied kCopyBytes of them together.
constexpr BlockFields kCodeBlock = block_fields(quant::Type::q8_0);
static_assert(kCodeBlock.values == tiles::kSpan);
constexpr ColumnDivisors kCodeColumns{columns_of_rows(kCodeBlock.bytes, kCopyBytes),
                                      columns_of_rows(kCodeBlock.bytes, kWordBytes), tiles::kSpan};
static_assert(kCodeColumns.down / tiles::kSpan * kCodeBlock.bytes % kCopyBytes == 0);
static_assert(kCodeColumns.up / tiles::kSpan * kCodeBlock.bytes % kWordBytes == 0);

bool weights_are_read_by_tiles(const op::StreamRead& args) {
    const quant::Type type = args.down.type;
    if (type != quant::Type::bf16 && type != quant::Type::q8_0) return false;
    const ColumnDivisors& columns = type == quant::Type::bf16 ? kBfloatColumns : kCodeColumns;
    return args.x.cols % columns.width == 0 && has_rows_of(args.down, type, columns.down) &&
           has_rows_of(args.up, type, columns.up) &&
           (args.inject_weight.empty() || has_rows_of(args.inject_weight, type, columns.down));
}

}  // namespace

bool reads_streams_by_tiles(const op::StreamRead& args, const Queue& queue) {
    constexpr std::int64_t kValuesMax = std::numeric_limits<int>::max();
    return queue.has_tensor_cores() && args.residual.size() <= kValuesMax &&
           args.streams <= tiles::kStreamsMax &&
           args.streams * slices_of(args.x.cols) <= tiles::kSlicesMax &&
           args.down.rows <= tiles::kLowMax && weights_are_read_by_tiles(args) &&
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
    tiles::multiply_slices(read, args.down.type, queue);
    tiles::collapse(read, args.down.type, queue);
}

}  // namespace strata::cuda
