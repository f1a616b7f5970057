#include "backend/cuda/queue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/sleep.h"
#include "base/text.h"

namespace strata::cuda {
namespace {

constexpr std::size_t kBlockBytesMin = std::size_t{1} << 20;
// Keys tell windows and chains of guesses of 1 to 16 rows apart, after 0 to 16 cells, the states
// that take turns, what is picked and bounds of the context: more than are in use at a time. A
// graph takes about a kilobyte of the device's memory a kernel, which the plan's reserve has.
constexpr std::size_t kGraphsMax = 256;
// What is fetched at once by way of pinned memory.
constexpr std::size_t kStagingBytes = std::size_t{64} << 10;
// The driver takes 1,024.
constexpr int kLaunchesBetweenMarks = 256;

// A step of a token is not made longer by the sleep, and nobody minds it in a prompt.
constexpr std::chrono::milliseconds kSpin{20};
constexpr std::chrono::microseconds kSleep{100};

template <typename Ask>
cudaError_t wait_until(Health& health, const Ask& ask) {
    using Clock = std::chrono::steady_clock;
    if (health.hung) return cudaErrorNotReady;
    cudaError_t result = ask();
    if (result != cudaErrorNotReady) return result;
    const Clock::time_point start = Clock::now();
    while ((result = ask()) == cudaErrorNotReady) {
        const Clock::duration waited = Clock::now() - start;
        if (waited >= health.wait_limit) {
            health.hung = true;
            return result;
        }
        if (waited > kSpin) sleep_for(kSleep);
    }
    // Not to be ready is kept as an error too, which the next call might report.
    if (result == cudaSuccess) static_cast<void>(cudaGetLastError());
    return result;
}

constexpr std::string_view kNoTrust =
    "; nothing that it has computed since can be trusted, and a new start is wanted";

}  // namespace

Status told(cudaError_t result, std::string_view name) {
    if (result == cudaSuccess) return Ok{};
    return STRATA_ERROR("the device ", name, " failed: ", cudaGetErrorString(result), kNoTrust);
}

cudaError_t wait_for(Health& health, cudaStream_t stream) {
    return wait_until(health, [&] { return cudaStreamQuery(stream); });
}

cudaError_t wait_for(Health& health, cudaEvent_t event) {
    return wait_until(health, [&] { return cudaEventQuery(event); });
}

bool settled(Health& health) {
    for (const cudaStream_t stream : health.streams) {
        static_cast<void>(wait_for(health, stream));
    }
    return !health.hung;
}

Status answers(const Health& health, std::string_view name) {
    if (!health.hung) return Ok{};
    return STRATA_ERROR("the device ", name, " failed: its work has not ended after ",
                        static_cast<double>(health.wait_limit.count()) / 1000, " s", kNoTrust);
}

Arena::~Arena() {
    for (const Block& block : blocks_) static_cast<void>(cudaFree(block.data));
}

cudaError_t Arena::merge() {
    const std::size_t all = capacity_;
    cudaError_t first = cudaSuccess;
    for (const Block& block : blocks_) {
        const cudaError_t freed = cudaFree(block.data);
        if (first == cudaSuccess) first = freed;
    }
    blocks_.clear();
    capacity_ = 0;
    ++generation_;
    return first == cudaSuccess ? add_block(all) : first;
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
    bytes = (bytes + kScratchAlignment - 1) & ~(kScratchAlignment - 1);
    if (blocks_.empty() || blocks_.back().bytes - used_ < bytes) {
        const cudaError_t added = add_block(std::max({bytes, capacity_, kBlockBytesMin}));
        if (added != cudaSuccess) return added;
    }
    piece = blocks_.back().data + used_;
    used_ += bytes;
    return cudaSuccess;
}

Queue::Queue(int number, Health& health, bool poison)
    : number_(number), health_(health), poison_(poison) {
    note(cudaSetDevice(number));
    note(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, number));
    note(cudaDeviceGetAttribute(&shared_bytes_max_, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                number));
    int major = 0;
    note(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number));
    overlaps_kernels_ = major >= 9;
    has_tensor_cores_ = major >= 8;
    note(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& mark : marks_) note(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
    if (failed()) return;
    health_.streams.push_back(stream_);
    void* staging = nullptr;
    if (cudaHostAlloc(&staging, kStagingBytes, cudaHostAllocDefault) == cudaSuccess) {
        staging_ = static_cast<std::byte*>(staging);
    } else {
        static_cast<void>(cudaGetLastError());  // fetching takes longer
    }
}

std::byte* Queue::take_bytes(std::size_t bytes) {
    // Once nothing runs that would use it, any address but null, by which ops tell that there is
    // nothing.
    std::byte* piece = nowhere_.data();
    if (!failed()) note(arena_.take(bytes, piece));
    constexpr int kNan = 0xff;  // in every byte of any number format
    if (poison_ && !failed()) note(cudaMemsetAsync(piece, kNan, bytes, stream_));
    return piece;
}

// A stream whose device is lost cannot be destroyed either, and no longer matters.
Queue::~Queue() {
    if (!settled(health_)) {
        arena_.abandon();
        return;
    }
    std::erase(health_.streams, stream_);
    forget_graphs();
    for (const cudaEvent_t mark : marks_) {
        if (mark != nullptr) static_cast<void>(cudaEventDestroy(mark));
    }
    static_cast<void>(cudaFreeHost(staging_));
    static_cast<void>(cudaStreamDestroy(stream_));
}

// After a failure too: what ran before it may still write to memory of the host.
void Queue::wait() { note(wait_for(health_, stream_)); }

// A transfer to memory that is not pinned waits in the driver, without a limit: it comes when
// nothing is left to wait for.
void Queue::download(std::span<std::byte> to, const std::byte* from) {
    const bool staged = staging_ != nullptr && to.size() <= kStagingBytes;
    if (!staged) wait();
    if (!to.empty() && !failed()) {
        note(cudaMemcpyAsync(staged ? staging_ : to.data(), from, to.size(), cudaMemcpyDeviceToHost,
                             stream_));
    }
    wait();
    if (failed()) {
        std::fill(to.begin(), to.end(), std::byte{0});
    } else if (staged) {
        std::copy_n(staging_, to.size(), to.begin());
    }
}

void Queue::pace() {
    if (capturing_ || ++launches_ < kLaunchesBetweenMarks) return;
    launches_ = 0;
    const cudaEvent_t mark = marks_[turn_++ % marks_.size()];
    note(wait_for(health_, mark));  // over where it was never recorded
    if (!failed()) note(cudaEventRecord(mark, stream_));
}

Status Queue::status() const {
    const std::string name = concat("CUDA ", number_);
    STRATA_TRY(answers(health_, name));
    return told(failure_, name);
}

void Queue::forget_graphs() {
    for (const auto& [key, graph] : graphs_) {
        if (graph.exec != nullptr) static_cast<void>(cudaGraphExecDestroy(graph.exec));
    }
    graphs_.clear();
}

void Queue::forget_oldest_graph() {
    if (graphs_.size() < kGraphsMax) return;
    const auto oldest = std::min_element(
        graphs_.begin(), graphs_.end(),
        [](const auto& a, const auto& b) { return a.second.turn < b.second.turn; });
    // One that still runs is freed when it has ended.
    if (oldest->second.exec != nullptr) {
        static_cast<void>(cudaGraphExecDestroy(oldest->second.exec));
    }
    graphs_.erase(oldest);
}

cudaGraphExec_t Queue::capture(const std::function<void()>& submit) {
    // Not supported: then everything is submitted each time.
    if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
        return nullptr;
    }
    capturing_ = true;
    submit();
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    note(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t exec = nullptr;
    if (!failed()) note(cudaGraphInstantiate(&exec, graph, 0));
    if (graph != nullptr) note(cudaGraphDestroy(graph));
    return exec;
}

// Not while work is captured, which ran before: there was room for it.
void Queue::settle() {
    if (capturing_ || failed() || !arena_.in_pieces()) return;
    wait();
    if (!failed()) note(arena_.merge());
}

void Queue::run(std::span<const std::int64_t> key, const std::function<void()>& submit) {
    settle();
    if (failed()) return;
    std::vector<std::int64_t> own(key.begin(), key.end());
    auto found = graphs_.find(own);
    if (found != graphs_.end() && found->second.arena != arena_.generation()) {
        forget_graphs();
        found = graphs_.end();
    }
    if (found == graphs_.end()) {
        submit();
        forget_oldest_graph();
        graphs_.emplace(std::move(own), Graph{nullptr, arena_.generation(), ++graph_turn_});
        return;
    }
    Graph& graph = found->second;
    graph.turn = ++graph_turn_;
    if (graph.exec == nullptr) graph.exec = capture(submit);
    if (graph.exec == nullptr) {
        submit();
        return;
    }
    pace();
    if (!failed()) note(cudaGraphLaunch(graph.exec, stream_));
}

Queue& begin_op(device::Queue& queue) {
    auto& own = static_cast<Queue&>(queue);
    own.settle();
    own.arena_.reset();
    return own;
}

cudaStream_t stream_of(device::Queue& queue) { return static_cast<Queue&>(queue).stream(); }

}  // namespace strata::cuda
