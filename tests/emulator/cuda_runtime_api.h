// Enough of CUDA to run the kernels of src/backend/cuda on the host, one thread after another: for
// tests on machines without a GPU. It stands in place of the toolkit's headers. Finds wrong
// indices, formulas and barriers that not all reach; not races, and says nothing of speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// The runtime: one device whose memory is the host's; streams have always finished but for copies
// from pinned memory.

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
};
enum { cudaHostRegisterDefault = 0 };
enum { cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
};

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

struct dim3 {
    unsigned x = 1;
    unsigned y = 1;
    unsigned z = 1;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    std::size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned numAttrs = 0;
};
struct cudaDeviceProp {
    char name[256];
    int major;
    int minor;
    int multiProcessorCount;
    std::size_t totalGlobalMem;
    std::size_t sharedMemPerBlockOptin;
};

namespace emulator {

// After `launches` more kernels the next one does not run, and from then on every call fails, as
// after an access to memory that is not the device's; negative: no such end, and an earlier one is
// mended.
void fail_after(int launches);
// After so many more kernels the next one does not end. What waits for it would never return, which
// ends the program here. fail_after() ends it as well.
void hang_after(int launches);
// The next calls that ask for pinned memory are refused.
void refuse_pinned(int calls);
// Bytes of device and pinned memory that are taken.
std::size_t memory_taken();
// The most that a block may have of shared memory from now on, static and dynamic.
inline constexpr std::size_t kSharedBytesMost = std::size_t{227} << 10;  // of the largest cards
void limit_shared_bytes(std::size_t bytes);
// Of one launch: whether it is to run; not where every call fails, nor beyond a device's limits.
bool may_run(const cudaLaunchConfig_t& config, cudaError_t& result);
// What calls return.
cudaError_t state();
// What was asked of the device since the program began: outside of graphs, but for the waits.
struct Counts {
    std::int64_t kernels = 0;  // that ran, those of graphs as well
    std::int64_t launches = 0;
    std::int64_t graph_launches = 0;
    std::int64_t graphs_made = 0;
    std::int64_t uploads = 0;  // from memory of the host
    std::int64_t downloads = 0;
    std::int64_t copies = 0;  // within the device's memory
    std::int64_t waits = 0;   // of the host for the device
};
Counts& counts();
// Whether work is taken into a graph, and not run; its next node.
bool capturing();
void capture(std::function<cudaError_t()> node);
// Copies from pinned memory lag behind until something waits for them, as they may on a device.
void finish_copies();

}  // namespace emulator

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* data);
cudaError_t cudaMemset(void* data, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
// Graphs hold what was submitted, with its arguments as they were then. What a device cannot
// capture fails: transfers of memory that is not pinned, and waiting.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
