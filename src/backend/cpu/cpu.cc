#include "backend/cpu/cpu.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <string>

#include "backend/cpu/kernels.h"
#include "backend/cpu/queue.h"
#include "base/memory.h"
#include "base/text.h"

namespace strata::cpu {
namespace {

constexpr std::align_val_t kAlignment{device::kBufferAlignment};

// From here on the kernel hands out zero pages as they are first touched: a cache for a long
// context takes memory only as the context grows.
constexpr std::size_t kMappedBytes = std::size_t{4} << 20;

std::byte* map_zeros(std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::byte* new_zeros(std::size_t bytes) {
    void* data = ::operator new(bytes, kAlignment, std::nothrow);
    return data == nullptr ? nullptr : static_cast<std::byte*>(std::memset(data, 0, bytes));
}

class Device final : public device::Device {
  public:
    explicit Device(const DeviceOptions& options) : shared_(options) {}

    std::string_view name() const override { return "CPU"; }
    Result<std::uint64_t> available() const override { return available_memory(); }
    bool has_factors() const override { return true; }

    Result<device::Buffer> allocate(std::size_t bytes) override {
        if (bytes == 0) return device::Buffer();
        const bool mapped = bytes >= kMappedBytes;
        const std::uint64_t available = mapped ? available_memory() : bytes;
        std::byte* data = nullptr;
        if (bytes <= available) data = mapped ? map_zeros(bytes) : new_zeros(bytes);
        if (data == nullptr) {
            return STRATA_ERROR("not enough memory: wanted ", bytes, " bytes; ", memory_left());
        }
        return device::Buffer(this, data, bytes);
    }

    Result<const std::byte*> resident(device::Queue&, std::span<const std::byte> bytes) override {
        return bytes.data();
    }

    void upload(device::Queue&, std::byte* to, std::span<const std::byte> from) override {
        if (!from.empty()) std::memcpy(to, from.data(), from.size());
    }
    void download(device::Queue& queue, std::span<std::byte> to, const std::byte* from) override {
        if (to.empty()) return;
        if (static_cast<const Queue&>(queue).failed()) {
            std::memset(to.data(), 0, to.size());
        } else {
            std::memcpy(to.data(), from, to.size());
        }
    }
    void copy(device::Queue&, std::byte* to, const std::byte* from, std::size_t bytes) override {
        if (bytes != 0) std::memmove(to, from, bytes);
    }
    void clear(device::Queue&, std::byte* data, std::size_t bytes) override {
        if (bytes != 0) std::memset(data, 0, bytes);
    }

    std::unique_ptr<device::Queue> make_queue() override {
        return std::make_unique<Queue>(shared_);
    }

  private:
    void release(std::byte* data, std::size_t bytes) noexcept override {
        if (bytes >= kMappedBytes) {
            ::munmap(data, bytes);
        } else {
            ::operator delete(data, kAlignment);
        }
    }

    SharedPool shared_;
};

template <typename Args, void (*kOp)(const Args&, device::Queue&)>
void run(const Args& args, device::Queue& queue) {
    static_cast<Queue&>(queue).run_op([&] { kOp(args, queue); });
}

}  // namespace

std::unique_ptr<device::Device> make_device(const DeviceOptions& options) {
    return std::make_unique<Device>(options);
}

op::Table op_table() {
    return {
#define STRATA_OP(name, Args) .name = run<op::Args, name>,
#include "op/ops.def"
#undef STRATA_OP
    };
}

}  // namespace strata::cpu
