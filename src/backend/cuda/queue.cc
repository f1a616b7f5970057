#include "backend/cuda/queue.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace strata::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kBlockBytesMin = std::size_t{1} << 20;
// Sixteen window sizes, two states each, a few kinds of work and lengths of context.
constexpr std::size_t kGraphsMax = 512;

}  // namespace

Status told(cudaError_t result, std::string_view name) {
    if (result == cudaSuccess) return Ok{};
    return STRATA_ERROR("the device ", name, " failed: ", cudaGetErrorString(result),
                        "; nothing that it has computed since can be trusted, and a new start is "
                        "wanted");
}

Arena::~Arena() {
    for (const Block& block : blocks_) static_cast<void>(cudaFree(block.data));
}

// Of several blocks the next ops get one as large as all.
cudaError_t Arena::reset() {
    used_ = 0;
    if (blocks_.size() < 2) return cudaSuccess;
    const std::size_t all = capacity_;
    cudaError_t freed = cudaSuccess;
    // Waits until no kernel uses them.
    for (const Block& block : blocks_) freed = std::max(freed, cudaFree(block.data));
    blocks_.clear();
    capacity_ = 0;
    ++generation_;
    return freed == cudaSuccess ? add_block(all) : freed;
}

cudaError_t Arena::add_block(std::size_t bytes) {
    void* data = nullptr;
    const cudaError_t taken = cudaMalloc(&data, bytes);
    if (taken != cudaSuccess) return taken;
    blocks_.push_back({static_cast<std::byte*>(data), bytes});
    capacity_ += bytes;
    used_ = 0;
    return cudaSuccess;
}

cudaError_t Arena::take(std::size_t bytes, std::byte*& piece) {
    bytes = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    if (blocks_.empty() || blocks_.back().bytes - used_ < bytes) {
        const cudaError_t added = add_block(std::max({bytes, capacity_, kBlockBytesMin}));
        if (added != cudaSuccess) return added;
    }
    piece = blocks_.back().data + used_;
    used_ += bytes;
    return cudaSuccess;
}

Queue::Queue(int number, bool poison) : number_(number), poison_(poison) {
    note(cudaSetDevice(number));
    note(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, number));
    note(cudaDeviceGetAttribute(&shared_bytes_max_, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                number));
    int major = 0;
    note(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number));
    overlaps_kernels_ = major >= 9;
    note(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

std::byte* Queue::take_bytes(std::size_t bytes) {
    // Once nothing runs that would use it, any address but null, by which ops tell that there is
    // nothing.
    auto* piece = reinterpret_cast<std::byte*>(kAlignment);
    if (!failed()) note(arena_.take(bytes, piece));
    constexpr int kNan = 0xff;  // in every byte of any number format
    if (poison_ && !failed()) note(cudaMemsetAsync(piece, kNan, bytes, stream_));
    return piece;
}

// A stream whose device is lost cannot be destroyed either, and no longer matters.
Queue::~Queue() {
    forget_graphs();
    static_cast<void>(cudaStreamDestroy(stream_));
}

// After a failure too: what ran before it may still write to memory of the host.
void Queue::wait() { note(cudaStreamSynchronize(stream_)); }

Status Queue::status() const { return told(failure_, concat("CUDA ", number_)); }

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
    note(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t exec = nullptr;
    if (failed()) return exec;
    note(cudaGraphInstantiate(&exec, graph, 0));
    note(cudaGraphDestroy(graph));
    return exec;
}

void Queue::run(std::span<const std::int64_t> key, const std::function<void()>& submit) {
    if (failed()) return;
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
    note(cudaGraphLaunch(graph.exec, stream_));
}

Queue& begin_op(device::Queue& queue) {
    auto& own = static_cast<Queue&>(queue);
    if (!own.failed()) own.note(own.arena_.reset());
    return own;
}

cudaStream_t stream_of(device::Queue& queue) { return static_cast<Queue&>(queue).stream(); }

}  // namespace strata::cuda
