#include "backend/cuda/weight_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace strata::cuda {
namespace {

constexpr std::size_t kSliceBytes = std::size_t{16} << 20;
constexpr std::size_t kFirstChunkBytes = std::size_t{4} << 20;
constexpr std::size_t kChunkBytesMax = std::size_t{1} << 30;
constexpr std::size_t kAlignment = 256;
constexpr int kReaders = 8;

}  // namespace

Result<std::byte*> allocate_on(int number, std::string_view name, std::size_t bytes) {
    STRATA_TRY(told(cudaSetDevice(number), name));
    void* data = nullptr;
    const cudaError_t result = cudaMalloc(&data, bytes);
    if (result == cudaSuccess) return static_cast<std::byte*>(data);
    if (result != cudaErrorMemoryAllocation) STRATA_TRY(told(result, name));
    static_cast<void>(cudaGetLastError());  // else the next launch would report it
    std::size_t free = 0;
    std::size_t total = 0;
    STRATA_TRY(told(cudaMemGetInfo(&free, &total), name));
    return STRATA_ERROR("not enough memory on ", name, ": wanted ", bytes, " bytes, ", free, " of ",
                        total, " are free");
}

// Where the process ends before the store does, the driver is gone and has freed everything.
WeightStore::~WeightStore() {
    if (!settled(health_)) return;
    for (const Slice& slice : slices_) {
        if (slice.done == nullptr) continue;
        static_cast<void>(wait_for(health_, slice.done));
        if (health_.hung) return;
        static_cast<void>(cudaEventDestroy(slice.done));
    }
    for (std::byte* chunk : chunks_) static_cast<void>(cudaFree(chunk));
    for (const Slice& slice : slices_) {
        static_cast<void>(cudaFreeHost(slice.host));
        static_cast<void>(cudaFree(slice.device));
    }
}

// Chunks double up to a size, so that there are few of them and little is left over. Where there is
// no room for a whole one, there may be for what is wanted.
Result<std::byte*> WeightStore::take_chunk(std::size_t bytes) {
    next_chunk_ = std::clamp(2 * next_chunk_, kFirstChunkBytes, kChunkBytesMax);
    if (bytes < next_chunk_) {
        auto chunk = allocate_on(number_, name_, next_chunk_);
        if (chunk.ok()) {
            free_ = *chunk;
            free_bytes_ = next_chunk_;
            return chunk;
        }
    }
    STRATA_ASSIGN(std::byte * own, allocate_on(number_, name_, bytes));
    free_ = own;
    free_bytes_ = bytes;
    return own;
}

Result<std::byte*> WeightStore::take(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    if (bytes > free_bytes_) {
        STRATA_ASSIGN(std::byte * chunk, take_chunk(bytes));
        chunks_.push_back(chunk);
    }
    std::byte* piece = free_;
    free_ += bytes;
    free_bytes_ -= bytes;
    return piece;
}

// What an earlier call made before it failed is kept.
Status WeightStore::make_slices() {
    for (Slice& slice : slices_) {
        if (slice.host != nullptr) continue;
        if (slice.device == nullptr) {
            STRATA_ASSIGN(slice.device, allocate_on(number_, name_, kSliceBytes));
        }
        if (slice.done == nullptr) {
            STRATA_TRY(told(cudaEventCreateWithFlags(&slice.done, cudaEventDisableTiming), name_));
        }
        void* host = nullptr;
        if (cudaHostAlloc(&host, kSliceBytes, cudaHostAllocDefault) != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
            return STRATA_ERROR("no ", kSliceBytes, " bytes of pinned host memory for ", name_);
        }
        slice.host = static_cast<std::byte*>(host);
    }
    return Ok{};
}

// An event that was never recorded is over.
WeightStore::Slice& WeightStore::next_slice(Queue& queue) {
    Slice& slice = slices_[turn_++ % slices_.size()];
    queue.note(wait_for(health_, slice.done));
    return slice;
}

void WeightStore::read(std::span<const std::byte> from, std::byte* to) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    const auto bytes = static_cast<std::int64_t>(from.size());
    if (bytes <= kPiece) {
        std::memcpy(to, from.data(), from.size());
        return;
    }
    if (readers_ == nullptr) {
        readers_ = std::make_unique<ThreadPool>(kReaders);
    }
    const std::int64_t pieces = (bytes + kPiece - 1) / kPiece;
    readers_->parallel_for(pieces, [&](std::int64_t begin, std::int64_t end, int) {
        const std::int64_t first = begin * kPiece;
        const std::int64_t last = std::min(end * kPiece, bytes);
        std::memcpy(to + first, from.data() + first, static_cast<std::size_t>(last - first));
    });
}

Result<const std::byte*> WeightStore::copy(Queue& queue, std::span<const std::byte> bytes,
                                           const BlockFields& fields, std::int64_t blocks) {
    STRATA_TRY(make_slices());
    STRATA_ASSIGN(std::byte * to, take(bytes.size()));
    const auto row_bytes =
        static_cast<std::size_t>(std::max<std::int64_t>(fields.bytes * blocks, 1));
    STRATA_CHECK(row_bytes <= kSliceBytes && bytes.size() % row_bytes == 0);
    const std::size_t step = kSliceBytes / row_bytes * row_bytes;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
        Slice& slice = next_slice(queue);
        STRATA_TRY(queue.status());
        const auto part = bytes.subspan(at, std::min(step, bytes.size() - at));
        read(part, slice.host);
        std::byte* first = fields.bytes == 0 ? to + at : slice.device;
        queue.note(cudaMemcpyAsync(first, slice.host, part.size(), cudaMemcpyHostToDevice,
                                   queue.stream()));
        if (fields.bytes != 0) {
            arrange_rows(queue, slice.device, to + at,
                         static_cast<std::int64_t>(part.size() / row_bytes), fields, blocks);
        }
        queue.note(cudaEventRecord(slice.done, queue.stream()));
    }
    return static_cast<const std::byte*>(to);
}

}  // namespace strata::cuda
