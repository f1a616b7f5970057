// Memory and work queues of one device. Backends implement; everything above sees these interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "quant/type.h"

namespace strata::device {

class Device;

// Owns one block of device memory, aligned to kBufferAlignment. Movable; freed on destruction,
// which must come before the device's.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Device* device, std::byte* data, std::size_t bytes)
        : device_(device), data_(data), bytes_(bytes) {}
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    template <typename T>
    T* as() const {
        return reinterpret_cast<T*>(data_);
    }

  private:
    Device* device_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

inline constexpr std::size_t kBufferAlignment = 64;

// Sees what products multiply weights with: for statistics, not for serving.
class InputObserver {
  public:
    virtual ~InputObserver() = default;
    // One row `x`, in host memory, meets the columns from `first_column` on of the matrix that
    // starts at `weight`; of routed experts, of one's own.
    virtual void input(const std::byte* weight, std::int64_t first_column,
                       std::span<const float> x) = 0;
};

// Work submitted to one queue runs in order. Each backend derives its own (a stream, some
// threads).
class Queue {
  public:
    virtual ~Queue() = default;
    // Returns when everything submitted so far has run, or the device has failed.
    virtual void wait() = 0;
    // Error, from the first wait() on that met it: the device failed at this queue's work, or did
    // not end it within the backend's limit. What was read since cannot be trusted, what is
    // submitted from then on does not run, and what is read is zeros. It stays like this, and
    // nothing of the device waits for it any more.
    virtual Status status() const { return Ok{}; }
    // Whether run() records. Then what `submit` submits may be taken for what it submits with the
    // same key again: the key holds all that it depends on, and what varies is read from memory.
    virtual bool records() const { return false; }
    // Submits the work of `submit`, or its like of an earlier call with this key.
    virtual void run(std::span<const std::int64_t> /*key*/, const std::function<void()>& submit) {
        submit();
    }
    // Shows the observer every product's input from now on; null: no more. False, and nothing
    // happens, where the backend cannot.
    virtual bool observe(InputObserver*) { return false; }
};

class Device {
  public:
    virtual ~Device() = default;
    virtual std::string_view name() const = 0;
    // Bytes that it has for weights and buffers; the largest number where it does not say. Error:
    // it has failed.
    virtual Result<std::uint64_t> available() const { return UINT64_MAX; }
    // Whether its ops mind the factors of weights (op/weight.h).
    virtual bool has_factors() const { return false; }

    // Zero-filled. Errors: not enough memory, with both numbers; the device has failed.
    virtual Result<Buffer> allocate(std::size_t bytes) = 0;

    // Where kernels of this device find `bytes`, which outlive the device: the same address where
    // the device reads host memory, else a copy that the device owns, made in order with the
    // queue's work. The bytes have been read when the call returns.
    virtual Result<const std::byte*> resident(Queue& queue, std::span<const std::byte> bytes) = 0;

    // As resident(), of rows of `cols` values of `type` that kernels multiply with: a copy may have
    // the bytes of each row in the order that they read fastest. Not for tables, whose rows are
    // looked up as they are stored.
    virtual Result<const std::byte*> resident_matrix(Queue& queue, std::span<const std::byte> bytes,
                                                     quant::Type, std::int64_t) {
        return resident(queue, bytes);
    }

    // Ordered with the queue's work; when the call returns, the host range may be reused or has the
    // bytes.
    virtual void upload(Queue& queue, std::byte* to, std::span<const std::byte> from) = 0;
    virtual void download(Queue& queue, std::span<std::byte> to, const std::byte* from) = 0;
    virtual void copy(Queue& queue, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
    virtual void clear(Queue& queue, std::byte* data, std::size_t bytes) = 0;

    // Makes downloads to this host memory as fast as the device has them, until unpin, which comes
    // before the memory goes; nothing is uploaded from it. Does nothing where that is no different.
    virtual void pin(std::span<std::byte>) {}
    virtual void unpin(std::span<std::byte>) {}

    virtual std::unique_ptr<Queue> make_queue() = 0;

  private:
    friend class Buffer;
    virtual void release(std::byte* data, std::size_t bytes) noexcept = 0;
};

}  // namespace strata::device
