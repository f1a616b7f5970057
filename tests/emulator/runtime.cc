#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"

namespace {

constexpr std::size_t kMemory = std::size_t{4} << 30;  // what the device says that it has
constexpr std::size_t kAlignment = 256;

std::map<const void*, std::size_t> taken;  // bytes of each allocation

cudaError_t take(void** data, std::size_t bytes) {
    if (bytes > kMemory) return cudaErrorMemoryAllocation;
    const std::size_t whole =
        (std::max<std::size_t>(bytes, 1) + kAlignment - 1) & ~(kAlignment - 1);
    *data = std::aligned_alloc(kAlignment, whole);
    if (*data == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*data, 0xff, whole);  // reads as NaN
    taken[*data] = whole;
    return cudaSuccess;
}

int launches_left = -1;
int launches_before_hang = -1;
bool broken = false;
bool hung = false;
int refused = 0;

// Of the host for the device.
void wait_for_device() {
    if (!hung) return;
    std::fputs("the host waits for a kernel that does not end\n", stderr);
    std::abort();
}

// The driver takes so much ahead of the device, and then the host waits.
constexpr int kSubmittedMost = 1024;
constexpr std::size_t kTakenAtOnce = std::size_t{64} << 10;  // of memory that is not pinned
int submitted = 0;                                           // after what hangs

void submit() {
    if (hung && ++submitted > kSubmittedMost) wait_for_device();
}

std::size_t shared_bytes_max = emulator::kSharedBytesMost;
emulator::Counts counted;
cudaGraph_t captured = nullptr;  // not null: work goes there
bool capture_is_good = true;

struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
};
std::deque<Copy> copies;
std::uint64_t copies_done = 0;
std::map<const std::byte*, std::size_t> pinned;  // memory by its start, and its bytes

bool is_pinned(const std::byte* at) {
    const auto after = pinned.upper_bound(at);
    if (after == pinned.begin()) return false;
    const auto& [start, bytes] = *std::prev(after);
    return at < start + bytes;
}

void finish_copies_to(std::uint64_t number) {
    for (; copies_done < number && !copies.empty(); ++copies_done) {
        std::memcpy(copies.front().to, copies.front().from, copies.front().bytes);
        copies.pop_front();
    }
}

}  // namespace

// After how many copies it was recorded.
struct CUevent_st {
    std::uint64_t copies = 0;
};
struct CUgraph_st {
    std::vector<std::function<cudaError_t()>> nodes;
};
struct CUgraphExec_st {
    std::vector<std::function<cudaError_t()>> nodes;
};

namespace emulator {

Counts& counts() { return counted; }
bool capturing() { return captured != nullptr; }
void capture(std::function<cudaError_t()> node) { captured->nodes.push_back(std::move(node)); }

void fail_after(int launches) {
    launches_left = launches;
    launches_before_hang = -1;
    broken = false;
    hung = false;
    submitted = 0;
}

void hang_after(int launches) { launches_before_hang = launches; }
void refuse_pinned(int calls) { refused = calls; }

std::size_t memory_taken() {
    return std::accumulate(taken.begin(), taken.end(), std::size_t{0},
                           [](std::size_t sum, const auto& one) { return sum + one.second; });
}

void limit_shared_bytes(std::size_t bytes) { shared_bytes_max = bytes; }

bool may_run(const cudaLaunchConfig_t& config, cudaError_t& result) {
    constexpr std::size_t kThreadsMax = 1024;
    constexpr unsigned kBlocksMax = 65535;  // down and deep
    submit();
    const dim3& blocks = config.gridDim;
    const dim3& threads = config.blockDim;
    const std::size_t all_threads = std::size_t{threads.x} * threads.y * threads.z;
    result = state();
    if (result != cudaSuccess) return false;
    if (config.dynamicSmemBytes > shared_bytes_max || all_threads < 1 ||
        all_threads > kThreadsMax || blocks.x < 1 || blocks.y < 1 || blocks.z < 1 ||
        blocks.y > kBlocksMax || blocks.z > kBlocksMax) {
        result = cudaErrorInvalidValue;
        return false;
    }
    finish_copies();
    // That a kernel has failed shows in the next call.
    broken = launches_left >= 0 && launches_left-- == 0;
    hung = hung || (launches_before_hang >= 0 && launches_before_hang-- == 0);
    if (broken || hung) return false;
    ++counted.kernels;
    return true;
}

cudaError_t state() { return broken ? cudaErrorIllegalAddress : cudaSuccess; }

void finish_copies() { finish_copies_to(copies_done + copies.size()); }

}  // namespace emulator

const char* cudaGetErrorString(cudaError_t error) {
    if (error == cudaErrorIllegalAddress) return "an illegal memory access was encountered";
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the emulator";
}
cudaError_t cudaGetLastError() { return emulator::state(); }
cudaError_t cudaPeekAtLastError() { return emulator::state(); }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "emulated on the host");
    properties->major = 9;
    properties->multiProcessorCount = 2;
    properties->totalGlobalMem = kMemory;
    properties->sharedMemPerBlockOptin = shared_bytes_max;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount ? 2
             : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin
                 ? static_cast<int>(shared_bytes_max)
             : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                              : 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return emulator::state(); }
cudaError_t cudaDeviceSynchronize() {
    wait_for_device();
    emulator::finish_copies();
    return emulator::state();
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *free = *total = kMemory;
    return emulator::state();
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    return broken ? emulator::state() : take(data, bytes);
}
cudaError_t cudaFree(void* data) {
    wait_for_device();
    emulator::finish_copies();
    taken.erase(data);
    std::free(data);
    return emulator::state();
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
    if (broken) return emulator::state();
    if (refused > 0) {
        --refused;
        return cudaErrorMemoryAllocation;
    }
    const cudaError_t result = take(data, bytes);
    if (result == cudaSuccess) pinned[static_cast<const std::byte*>(*data)] = bytes;
    return result;
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) {
    wait_for_device();
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
    pinned.erase(static_cast<const std::byte*>(data));
    return cudaFree(data);
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
    emulator::finish_copies();
    if (!broken && !hung) std::memset(data, value, bytes);
    return emulator::state();
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
    if (!emulator::capturing()) {
        submit();
        return cudaMemset(data, value, bytes);
    }
    emulator::capture([=] { return cudaMemset(data, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (kind == cudaMemcpyDeviceToHost && !is_pinned(static_cast<std::byte*>(to))) {
        wait_for_device();
    }
    emulator::finish_copies();
    if (!broken && !hung) std::memcpy(to, from, bytes);
    return emulator::state();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
    const auto* start = static_cast<const std::byte*>(from);
    if (emulator::capturing()) {
        const void* host = kind == cudaMemcpyHostToDevice ? from : to;
        const bool there = kind == cudaMemcpyDeviceToDevice;
        if (!there && !is_pinned(static_cast<const std::byte*>(host))) {
            capture_is_good = false;
            return cudaErrorStreamCaptureUnsupported;
        }
        emulator::capture([=] { return cudaMemcpy(to, from, bytes, kind); });
        return cudaSuccess;
    }
    submit();
    if (kind == cudaMemcpyHostToDevice && bytes > kTakenAtOnce && !is_pinned(start)) {
        wait_for_device();
    }
    ++(kind == cudaMemcpyHostToDevice   ? counted.uploads
       : kind == cudaMemcpyDeviceToHost ? counted.downloads
                                        : counted.copies);
    if (broken || kind != cudaMemcpyHostToDevice || !is_pinned(start)) {
        return cudaMemcpy(to, from, bytes, kind);
    }
    copies.push_back({static_cast<std::byte*>(to), start, bytes});
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = nullptr;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    if (emulator::capturing()) {
        capture_is_good = false;
        return cudaErrorStreamCaptureUnsupported;
    }
    ++counted.waits;
    return cudaDeviceSynchronize();
}
cudaError_t cudaStreamQuery(cudaStream_t) {
    if (emulator::capturing()) {
        capture_is_good = false;
        return cudaErrorStreamCaptureUnsupported;
    }
    if (hung) return cudaErrorNotReady;
    ++counted.waits;
    emulator::finish_copies();
    return emulator::state();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
    if (broken || captured != nullptr) return cudaErrorNotSupported;
    captured = new CUgraph_st;
    capture_is_good = true;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
    *graph = std::exchange(captured, nullptr);
    if (broken) return emulator::state();
    return capture_is_good ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    ++counted.graphs_made;
    *exec = new CUgraphExec_st{graph->nodes};
    return emulator::state();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    submit();
    ++counted.graph_launches;
    for (const auto& node : exec->nodes) {
        if (const cudaError_t result = node(); result != cudaSuccess) return result;
    }
    return emulator::state();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    event->copies = copies_done + copies.size();
    return emulator::state();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (hung) return cudaErrorNotReady;
    finish_copies_to(event->copies);
    return emulator::state();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    wait_for_device();
    finish_copies_to(event->copies);
    return emulator::state();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
