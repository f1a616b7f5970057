// The CUDA backend's queue, a stream with memory for the length of an op; and what a failed call of
// the runtime leads to.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace strata::cuda {

// Error: a call failed on `name`, in CUDA's words.
Status told(cudaError_t result, std::string_view name);

// What all who use one device know of it.
struct Health {
    // A wait reaches its limit: work that takes so long will never end.
    std::chrono::milliseconds wait_limit{};
    // One has. What waits for the device, as the freeing of its memory does, would not return: it
    // is left undone, until the process ends.
    bool hung = false;
    std::vector<cudaStream_t> streams;  // of the queues that there are
};

// What the stream or event says once it has ended, asked again and again; cudaErrorNotReady where
// the device hangs.
cudaError_t wait_for(Health& health, cudaStream_t stream);
cudaError_t wait_for(Health& health, cudaEvent_t event);
// Whether all streams have ended: then what waits for the device returns.
bool settled(Health& health);
// Error: the device `name` hangs.
Status answers(const Health& health, std::string_view name);

inline constexpr std::size_t kScratchAlignment = 256;

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
    void reset() { used_ = 0; }
    // Whether merge() would do something.
    bool in_pieces() const { return blocks_.size() > 1; }
    // Makes one block of several. Nothing is taken, and nothing uses them.
    cudaError_t merge();
    // Leaves the memory as it is for good.
    void abandon() { blocks_.clear(); }
    // Uninitialized, aligned to kScratchAlignment; unchanged where the device has no memory left.
    cudaError_t take(std::size_t bytes, std::byte*& piece);
    // Differs after memory was given back: what was taken before must no longer be used.
    std::uint64_t generation() const { return generation_; }

  private:
    struct Block {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
    };
    cudaError_t add_block(std::size_t bytes);

    std::vector<Block> blocks_;
    std::size_t used_ = 0;  // of the last block
    std::size_t capacity_ = 0;
    std::uint64_t generation_ = 0;
};

// Bytes of shared memory that a block has beyond what it asked for: the compiler reads up to four
// words of a loop together, past the last one, and uses none of those.
inline constexpr std::size_t kReadTogether = 16;

// A failed call is noted, since ops have no way to tell; after one nothing more is submitted.
class Queue final : public device::Queue {
  public:
    // On the device of this number, whose `health` outlives it; `poison`: as DeviceOptions (cuda.h)
    // says.
    Queue(int number, Health& health, bool poison);
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;
    ~Queue() override;

    void wait() override;
    Status status() const override;
    // Keeps the first failure.
    void note(cudaError_t result) {
        if (failure_ == cudaSuccess) failure_ = result;
    }
    bool failed() const { return failure_ != cudaSuccess || health_.hung; }
    // As device::Device::download.
    void download(std::span<std::byte> to, const std::byte* from);
    // Before each launch, of a kernel or a graph, and each transfer: the driver takes a thousand or
    // so ahead, and then waits without a limit.
    void pace();
    bool records() const override { return true; }
    // The first call with a key runs what is submitted, so that scratch memory and code are there;
    // the second captures it as a graph, and later ones launch that. Of many keys, what was not
    // used for longest is forgotten.
    void run(std::span<const std::int64_t> key, const std::function<void()>& submit) override;
    cudaStream_t stream() const { return stream_; }
    int multiprocessors() const { return multiprocessors_; }
    // The most that a block may have.
    std::size_t shared_bytes_max() const {
        return static_cast<std::size_t>(shared_bytes_max_) - kReadTogether;
    }
    // Whether a kernel can begin before the one before it has ended.
    bool overlaps_kernels() const { return overlaps_kernels_; }
    // Whether there are tensor cores for BF16.
    bool has_tensor_cores() const { return has_tensor_cores_; }
    // Whether the code that runs here has products of warpgroups; nothing: nobody has asked the
    // driver yet (runs_warpgroups(), which keeps the answer here).
    std::optional<bool>& has_warpgroups() { return has_warpgroups_; }

    // Uninitialized memory until the next op of this queue; once it has failed, nowhere.
    template <typename T>
    T* take(std::int64_t count) {
        return reinterpret_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
    }
    MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) {
        return {take<float>(rows * cols), rows, cols};
    }

  private:
    friend Queue& begin_op(device::Queue& queue);

    struct Graph {
        cudaGraphExec_t exec = nullptr;  // null: its work ran once
        std::uint64_t arena = 0;         // Arena::generation() of its memory
        std::uint64_t turn = 0;          // of its last use
    };
    std::byte* take_bytes(std::size_t bytes);
    // Makes one piece of the scratch memory.
    void settle();
    cudaGraphExec_t capture(const std::function<void()>& submit);
    void forget_graphs();
    // Makes room for one more.
    void forget_oldest_graph();

    std::map<std::vector<std::int64_t>, Graph, std::less<>> graphs_;
    std::uint64_t graph_turn_ = 0;
    const int number_;
    Health& health_;
    const bool poison_;
    bool capturing_ = false;
    int launches_ = 0;  // since the last mark
    std::size_t turn_ = 0;
    std::array<cudaEvent_t, 2> marks_{};
    std::byte* staging_ = nullptr;  // pinned; null: there was none to be had
    alignas(kScratchAlignment) std::array<std::byte, kScratchAlignment> nowhere_{};
    cudaError_t failure_ = cudaSuccess;
    cudaStream_t stream_ = nullptr;
    int multiprocessors_ = 0;
    int shared_bytes_max_ = 0;
    bool overlaps_kernels_ = false;
    bool has_tensor_cores_ = false;
    std::optional<bool> has_warpgroups_;
    Arena arena_;
};

// The queue as what it is, its scratch memory empty. Every op that takes memory starts with it.
Queue& begin_op(device::Queue& queue);

// The stream of a queue that this backend made.
cudaStream_t stream_of(device::Queue& queue);

}  // namespace strata::cuda
