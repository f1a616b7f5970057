// Device memory for what models consist of, and the way of their bytes there.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/blocks.h"
#include "backend/cuda/queue.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace strata::cuda {

// Copies live as long as the store. Bytes go through two slices of pinned host memory, in turn from
// one copy to the next, so that the reading of one overlaps with the transfer of the other; several
// threads read, since a mapped file comes a page fault at a time. Not for use by several threads at
// once.
class WeightStore {
  public:
    // On the device of this number, called `name` in errors; `health` is the device's.
    WeightStore(int number, std::string_view name, Health& health)
        : number_(number), name_(name), health_(health) {}
    WeightStore(const WeightStore&) = delete;
    WeightStore& operator=(const WeightStore&) = delete;
    ~WeightStore();

    // A copy, aligned to 256; of rows of `blocks` blocks with the fields, in the order of planes
    // (blocks.h), or as it is where there are no fields. `bytes` have been read when the call
    // returns, and the copy is there for later work of the queue. Errors: not enough memory,
    // with both numbers; the device has failed.
    Result<const std::byte*> copy(Queue& queue, std::span<const std::byte> bytes,
                                  const BlockFields& fields = {}, std::int64_t blocks = 0);

  private:
    struct Slice {
        std::byte* host = nullptr;    // pinned
        std::byte* device = nullptr;  // what is to be rearranged
        cudaEvent_t done = nullptr;   // recorded after the last use, on the queue of that copy
    };

    Result<std::byte*> take(std::size_t bytes);
    Result<std::byte*> take_chunk(std::size_t bytes);
    Status make_slices();
    // The slice whose turn it is, once nothing uses it any more.
    Slice& next_slice(Queue& queue);
    void read(std::span<const std::byte> from, std::byte* to);

    const int number_;
    const std::string_view name_;
    Health& health_;
    std::unique_ptr<ThreadPool> readers_;
    std::array<Slice, 2> slices_;
    std::size_t turn_ = 0;
    std::vector<std::byte*> chunks_;
    std::size_t next_chunk_ = 0;  // bytes
    std::byte* free_ = nullptr;   // of the last chunk
    std::size_t free_bytes_ = 0;
};

// Error: not enough memory, with both numbers.
Result<std::byte*> allocate_on(int number, std::string_view name, std::size_t bytes);

// to = the rows of `from`, each of `blocks` blocks, in the order of planes.
void arrange_rows(Queue& queue, const std::byte* from, std::byte* to, std::int64_t rows,
                  const BlockFields& fields, std::int64_t blocks);

}  // namespace strata::cuda
