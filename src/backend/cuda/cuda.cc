#include "backend/cuda/cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "backend/cuda/kernels.h"
#include "backend/cuda/prompt.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/weight_store.h"
#include "base/text.h"

namespace strata::cuda {
namespace {

// Bytes of an upload, which the driver copies before it returns.
constexpr std::size_t kTakenAtOnce = std::size_t{64} << 10;

class Device final : public device::Device {
  public:
    Device(int number, std::string name, const DeviceOptions& options)
        : number_(number),
          name_(std::move(name)),
          options_(options),
          health_{.wait_limit = options.wait_limit, .hung = false, .streams = {}},
          weights_(number, name_, health_) {}

    std::string_view name() const override { return name_; }
    bool has_factors() const override { return true; }

    Result<std::uint64_t> available() const override {
        std::size_t free = 0;
        std::size_t total = 0;
        STRATA_TRY(answers(health_, name_));
        STRATA_TRY(told(cudaSetDevice(number_), name_));
        STRATA_TRY(told(cudaMemGetInfo(&free, &total), name_));
        return std::uint64_t{free};
    }

    Result<device::Buffer> allocate(std::size_t bytes) override {
        if (bytes == 0) return device::Buffer();
        STRATA_TRY(answers(health_, name_));
        STRATA_ASSIGN(std::byte * data, allocate_on(number_, name_, bytes));
        device::Buffer buffer(this, data, bytes);
        // The default stream's work is ordered with no other stream: wait for it.
        STRATA_TRY(told(cudaMemsetAsync(data, 0, bytes, nullptr), name_));
        const cudaError_t done = wait_for(health_, cudaStream_t{nullptr});
        STRATA_TRY(answers(health_, name_));
        STRATA_TRY(told(done, name_));
        return buffer;
    }

    Result<const std::byte*> resident(device::Queue& queue,
                                      std::span<const std::byte> bytes) override {
        if (bytes.empty()) return bytes.data();
        return weights_.copy(own(queue), bytes);
    }
    Result<const std::byte*> resident_matrix(device::Queue& queue, std::span<const std::byte> bytes,
                                             quant::Type type, std::int64_t cols) override {
        const BlockFields fields = block_fields(type);
        if (bytes.empty() || fields.bytes == 0) return resident(queue, bytes);
        return weights_.copy(own(queue), bytes, fields, cols / fields.values);
    }

    void upload(device::Queue& queue, std::byte* to, std::span<const std::byte> from) override {
        // Memory that is not pinned has been read when the call returns. More of it than the driver
        // takes at once waits in the driver, without a limit, for what was submitted before: it
        // comes when nothing is left to wait for.
        if (from.size() > kTakenAtOnce) own(queue).wait();
        move(queue, to, from.data(), from.size(), cudaMemcpyHostToDevice);
    }
    void download(device::Queue& queue, std::span<std::byte> to, const std::byte* from) override {
        own(queue).download(to, from);
    }
    void copy(device::Queue& queue, std::byte* to, const std::byte* from,
              std::size_t bytes) override {
        move(queue, to, from, bytes, cudaMemcpyDeviceToDevice);
    }
    void clear(device::Queue& queue, std::byte* data, std::size_t bytes) override {
        if (bytes == 0 || own(queue).failed()) return;
        own(queue).pace();
        if (own(queue).failed()) return;
        own(queue).note(cudaMemsetAsync(data, 0, bytes, stream_of(queue)));
    }

    // Where the system refuses, transfers are slower and no less right.
    void pin(std::span<std::byte> memory) override {
        if (cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault) !=
            cudaSuccess) {
            static_cast<void>(cudaGetLastError());
        }
    }
    void unpin(std::span<std::byte> memory) override {
        if (!settled(health_)) return;
        if (cudaHostUnregister(memory.data()) != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
        }
    }

    std::unique_ptr<device::Queue> make_queue() override {
        return std::make_unique<Queue>(number_, health_, options_.poison);
    }

  private:
    static Queue& own(device::Queue& queue) { return static_cast<Queue&>(queue); }
    static void move(device::Queue& queue, void* to, const void* from, std::size_t bytes,
                     cudaMemcpyKind kind) {
        if (bytes == 0 || own(queue).failed()) return;
        own(queue).pace();
        if (own(queue).failed()) return;
        own(queue).note(cudaMemcpyAsync(to, from, bytes, kind, stream_of(queue)));
    }

    // Waits until the device no longer uses the memory. Where the process ends before the device
    // object does, the driver is gone and has freed it.
    void release(std::byte* data, std::size_t) noexcept override {
        if (settled(health_)) static_cast<void>(cudaFree(data));
    }

    int number_;
    std::string name_;
    DeviceOptions options_;
    Health health_;
    WeightStore weights_;
};

}  // namespace

Result<std::unique_ptr<device::Device>> make_device(int number, const DeviceOptions& options) {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess) {
        return STRATA_ERROR("CUDA finds no device: ", cudaGetErrorString(result));
    }
    if (number < 0 || number >= count) {
        return STRATA_ERROR("CUDA device ", number, " was asked for, and there are ", count);
    }
    cudaDeviceProp properties{};
    STRATA_TRY(told(cudaGetDeviceProperties(&properties, number), concat("CUDA ", number)));
    return std::unique_ptr<device::Device>(
        std::make_unique<Device>(number, concat("CUDA ", number, ", ", properties.name), options));
}

namespace {

op::Table window_table() {
    op::Table table;
    table.delta_net = delta_net;
    table.accept = accept;
    table.delta_replay = delta_replay;
    table.dflash_block = dflash_block;
    table.dflash_inject = dflash_inject;
    table.dflash_select = dflash_select;
    table.draw = draw;
    table.embed = embed;
    table.experts = experts;
    table.mtp_fuse = mtp_fuse;
    table.ngram_gather = ngram_gather;
    table.ngram_mix = ngram_mix;
    table.output_head = output_head;
    table.pick = pick;
    table.shift_history = shift_history;
    table.sparse_attention = sparse_attention;
    table.stream_mean = stream_mean;
    table.stream_read = stream_read;
    return table;
}

op::Table prompt_table() {
    op::Table table = window_table();
    table.ngram_mix = prompt::ngram_mix;
    table.mtp_fuse = prompt::mtp_fuse;
    table.dflash_inject = prompt::dflash_inject;
    table.stream_read = prompt::stream_read;
    table.delta_net = prompt::delta_net;
    table.sparse_attention = prompt::sparse_attention;
    table.experts = prompt::experts;
    table.output_head = prompt::output_head;
    return table;
}

}  // namespace

op::Table op_table(int number) {
    // Before 8.0 tiles of BF16 and the shared memory that prompts take are not to be had.
    constexpr int kPromptsFrom = 8;
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number) != cudaSuccess) {
        major = 0;  // the first step says why
    }
    static const op::Table prompts = prompt_table();
    op::Table table = window_table();
    if (major >= kPromptsFrom) table.prompts = &prompts;
    return table;
}

}  // namespace strata::cuda
