// The CUDA backend's queue, a stream with memory for the length of an op; and what a failed call of
// the runtime leads to.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/tensor.h"

namespace strata::cuda {

// Ends the process with CUDA's words where a call failed. For calls that fail only when the device
// is lost or a kernel broke it: the interfaces of device/device.h have no way to tell, and nothing
// that was computed can be trusted.
void must(cudaError_t result, const char* file, int line) noexcept;

// Device memory for the length of one op. It grows while ops grow; once an op as large has run,
// later ones allocate nothing. Memory that the op before took may be handed out again: the stream
// runs one after the other.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();

    // Forgets everything taken.
    void reset();
    // Uninitialized, aligned to 256. Ends the process where the device has no memory left.
    std::byte* take(std::size_t bytes);
    // Differs after memory was given back: what was taken before must no longer be used.
    std::uint64_t generation() const { return generation_; }

  private:
    struct Block {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
    };
    void add_block(std::size_t bytes);

    std::vector<Block> blocks_;
    std::size_t used_ = 0;  // of the last block
    std::size_t capacity_ = 0;
    std::uint64_t generation_ = 0;
};

class Queue final : public device::Queue {
  public:
    // On the device of this number.
    explicit Queue(int number);
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;
    ~Queue() override;

    void wait() override;
    bool records() const override { return true; }
    // The first call with a key runs what is submitted, so that scratch memory and code are there;
    // the second captures it as a graph, and later ones launch that.
    void run(std::span<const std::int64_t> key, const std::function<void()>& submit) override;
    cudaStream_t stream() const { return stream_; }
    int multiprocessors() const { return multiprocessors_; }
    // The most that a block may have.
    std::size_t shared_bytes_max() const { return static_cast<std::size_t>(shared_bytes_max_); }
    // Whether a kernel can begin before the one before it has ended.
    bool overlaps_kernels() const { return overlaps_kernels_; }

    // Uninitialized memory until the next op of this queue.
    template <typename T>
    T* take(std::int64_t count) {
        return reinterpret_cast<T*>(arena_.take(static_cast<std::size_t>(count) * sizeof(T)));
    }
    MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) {
        return {take<float>(rows * cols), rows, cols};
    }

  private:
    friend Queue& begin_op(device::Queue& queue);

    struct Graph {
        cudaGraphExec_t exec = nullptr;  // null: its work ran once
        std::uint64_t arena = 0;         // Arena::generation() of its memory
    };
    cudaGraphExec_t capture(const std::function<void()>& submit);
    void forget_graphs();

    std::map<std::vector<std::int64_t>, Graph, std::less<>> graphs_;
    cudaStream_t stream_ = nullptr;
    int multiprocessors_ = 0;
    int shared_bytes_max_ = 0;
    bool overlaps_kernels_ = false;
    Arena arena_;
};

// The queue as what it is, its scratch memory empty. Every op that takes memory starts with it.
Queue& begin_op(device::Queue& queue);

// The stream of a queue that this backend made.
cudaStream_t stream_of(device::Queue& queue);

}  // namespace strata::cuda

#define STRATA_CUDA_MUST(call) ::strata::cuda::must((call), __FILE__, __LINE__)
