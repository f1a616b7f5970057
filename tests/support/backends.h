// Every backend in the build, in each configuration whose results must agree.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace strata::test {

struct TestBackend {
    std::string name;  // "cpu, 3 threads"
    std::string kind;  // backends of one kind agree bit for bit
    Backend backend;
};

// Made on first use, kept until the process ends. The first of a kind is its reference.
std::vector<TestBackend>& backends();

// The CUDA backend among them; null where there is none.
TestBackend* cuda_backend();

// Another of the same device, whose scratch memory is NaN before every op.
Result<Backend> poisoned_cuda_backend();

// After `launches` more kernels that device fails; negative: it is well again. False where the
// device cannot be made to fail, which only the emulated one can.
bool fail_cuda_after(int launches);

// After `launches` more kernels the next one does not end, until fail_cuda_after(-1). False as
// above.
bool hang_cuda_after(int launches);

// Another of the same device, which has failed after a wait of `limit`.
Result<Backend> impatient_cuda_backend(std::chrono::milliseconds limit);

// The next `calls` for pinned memory are refused. False as above.
bool refuse_cuda_pinned(int calls);

// Bytes that are taken on that device and of pinned memory; 0 for a real one.
std::size_t cuda_memory_taken();

// What that device was asked for since the program began; of graphs their launches alone.
struct CudaCounts {
    std::int64_t kernels = 0;  // that ran, wherever they were launched from
    std::int64_t launches = 0;
    std::int64_t graph_launches = 0;
    std::int64_t uploads = 0;
    std::int64_t downloads = 0;
    std::int64_t copies = 0;
    std::int64_t waits = 0;

    bool operator==(const CudaCounts&) const = default;
    CudaCounts operator-(const CudaCounts& before) const;
};
void PrintTo(const CudaCounts& counts, std::ostream* out);

// What a draft is: it is told where it stands, runs as one piece, and its guesses are fetched.
inline bool is_one_launch(CudaCounts counts) {
    counts.kernels = 0;
    return counts == CudaCounts{0, 0, 1, 1, 1, 0, 1};
}

// Nothing where they are not counted, as for a real device.
std::optional<CudaCounts> cuda_counts();

// From now on that device has so much shared memory for a block of threads. False as above.
bool limit_cuda_shared_bytes(std::size_t bytes);

}  // namespace strata::test
