#include "backend/cuda/queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace strata::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kBlockBytesMin = std::size_t{1} << 20;
// Sixteen window sizes, two states each, a few kinds of work and lengths of context.
constexpr std::size_t kGraphsMax = 512;

}  // namespace

void must(cudaError_t result, const char* file, int line) noexcept {
    if (result != cudaSuccess) check_failed(file, line, cudaGetErrorString(result));
}

Arena::~Arena() {
    for (const Block& block : blocks_) static_cast<void>(cudaFree(block.data));
}

// Of several blocks the next ops get one as large as all.
void Arena::reset() {
    used_ = 0;
    if (blocks_.size() < 2) return;
    const std::size_t all = capacity_;
    // Waits until no kernel uses them.
    for (const Block& block : blocks_) STRATA_CUDA_MUST(cudaFree(block.data));
    blocks_.clear();
    capacity_ = 0;
    ++generation_;
    add_block(all);
}

void Arena::add_block(std::size_t bytes) {
    void* data = nullptr;
    STRATA_CUDA_MUST(cudaMalloc(&data, bytes));
    blocks_.push_back({static_cast<std::byte*>(data), bytes});
    capacity_ += bytes;
    used_ = 0;
}

std::byte* Arena::take(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    if (blocks_.empty() || blocks_.back().bytes - used_ < bytes) {
        add_block(std::max({bytes, capacity_, kBlockBytesMin}));
    }
    std::byte* piece = blocks_.back().data + used_;
    used_ += bytes;
    return piece;
}

Queue::Queue(int number) {
    STRATA_CUDA_MUST(cudaSetDevice(number));
    STRATA_CUDA_MUST(
        cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, number));
    STRATA_CUDA_MUST(cudaDeviceGetAttribute(&shared_bytes_max_,
                                            cudaDevAttrMaxSharedMemoryPerBlockOptin, number));
    int major = 0;
    STRATA_CUDA_MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number));
    overlaps_kernels_ = major >= 9;
    STRATA_CUDA_MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

// A stream whose device is lost cannot be destroyed either, and no longer matters.
Queue::~Queue() {
    forget_graphs();
    static_cast<void>(cudaStreamDestroy(stream_));
}

void Queue::wait() { STRATA_CUDA_MUST(cudaStreamSynchronize(stream_)); }

void Queue::forget_graphs() {
    for (const auto& [key, graph] : graphs_) {
        if (graph.exec != nullptr) static_cast<void>(cudaGraphExecDestroy(graph.exec));
    }
    graphs_.clear();
}

cudaGraphExec_t Queue::capture(const std::function<void()>& submit) {
    // Not supported: then everything is submitted each time.
    if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
        return nullptr;
    }
    submit();
    cudaGraph_t graph = nullptr;
    STRATA_CUDA_MUST(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t exec = nullptr;
    STRATA_CUDA_MUST(cudaGraphInstantiate(&exec, graph, 0));
    STRATA_CUDA_MUST(cudaGraphDestroy(graph));
    return exec;
}

void Queue::run(std::span<const std::int64_t> key, const std::function<void()>& submit) {
    std::vector<std::int64_t> own(key.begin(), key.end());
    auto found = graphs_.find(own);
    if (found != graphs_.end() && found->second.arena != arena_.generation()) {
        forget_graphs();
        found = graphs_.end();
    }
    if (found == graphs_.end()) {
        submit();
        if (graphs_.size() >= kGraphsMax) forget_graphs();
        graphs_.emplace(std::move(own), Graph{nullptr, arena_.generation()});
        return;
    }
    Graph& graph = found->second;
    if (graph.exec == nullptr) graph.exec = capture(submit);
    if (graph.exec == nullptr) {
        submit();
        return;
    }
    STRATA_CUDA_MUST(cudaGraphLaunch(graph.exec, stream_));
}

Queue& begin_op(device::Queue& queue) {
    auto& own = static_cast<Queue&>(queue);
    own.arena_.reset();
    return own;
}

cudaStream_t stream_of(device::Queue& queue) { return static_cast<Queue&>(queue).stream(); }

}  // namespace strata::cuda
