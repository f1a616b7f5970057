// Bounded by the bus that brings the rows: a block a row, each byte or pair of bytes moved by
// itself.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/weight_store.h"

namespace strata::cuda {
namespace {

constexpr int kArrangeThreads = 128;

// Item: as many bytes as all fields can be divided into.
template <typename Item>
__global__ void __launch_bounds__(kArrangeThreads)
    arrange_kernel(const Item* from, Item* to, std::int64_t rows, BlockFields fields, int blocks) {
    constexpr int kBytes = sizeof(Item);
    const int block_items = fields.bytes / kBytes;
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const Item* own = from + row * blocks * block_items;
        Item* plane = to + row * blocks * block_items;
        for (int f = 0; f < kFieldsMax && fields.field[f].bytes > 0; ++f) {
            const int items = fields.field[f].bytes / kBytes;
            const int offset = fields.field[f].offset / kBytes;
            for (int i = static_cast<int>(threadIdx.x); i < blocks * items; i += kArrangeThreads) {
                plane[i] = own[i / items * block_items + offset + i % items];
            }
            plane += blocks * items;
        }
    }
}

template <typename Item>
void arrange(Queue& queue, const std::byte* from, std::byte* to, std::int64_t rows,
             const BlockFields& fields, std::int64_t blocks) {
    constexpr std::int64_t kGrid = std::int64_t{1} << 16;
    launch(queue, {dim3(static_cast<unsigned>(std::min(rows, kGrid))), kArrangeThreads},
           arrange_kernel<Item>, reinterpret_cast<const Item*>(from), reinterpret_cast<Item*>(to),
           rows, fields, static_cast<int>(blocks));
}

}  // namespace

void arrange_rows(Queue& queue, const std::byte* from, std::byte* to, std::int64_t rows,
                  const BlockFields& fields, std::int64_t blocks) {
    bool even = fields.bytes % 2 == 0;
    for (const Field& field : fields.field) even = even && (field.offset | field.bytes) % 2 == 0;
    if (even) {
        arrange<std::uint16_t>(queue, from, to, rows, fields, blocks);
    } else {
        arrange<std::uint8_t>(queue, from, to, rows, fields, blocks);
    }
}

}  // namespace strata::cuda
