#include "tests/support/backends.h"

#include <gtest/gtest.h>

#include "base/text.h"
#ifdef STRATA_EMULATE
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda.h"
#endif

namespace strata::test {
namespace {

void add(std::vector<TestBackend>& made, const char* name, const BackendOptions& options) {
    auto backend = make_cpu_backend(options);
    STRATA_CHECK(backend.ok());
    made.push_back(
        {concat("cpu, ", options.threads, " threads", name), "cpu", std::move(backend).value()});
}

// The GPU that is there; else its kernels on the host, in builds that have them.
Result<Backend> make_cuda(bool poison) {
#ifdef STRATA_EMULATE
    cuda::DeviceOptions options;
    options.poison = poison;
    STRATA_ASSIGN(auto device, cuda::make_device(0, options));
    return Backend{std::move(device), cuda::op_table(0)};
#else
    return make_cuda_backend(0, poison);
#endif
}

void add_cuda(std::vector<TestBackend>& made) {
    auto backend = make_cuda(false);
#ifdef STRATA_EMULATE
    STRATA_CHECK(backend.ok());  // else its tests would be skipped
#endif
    if (backend.ok()) made.push_back({"cuda", "cuda", std::move(backend).value()});
}

// One kind: neither threads nor instructions change a bit.
std::vector<TestBackend> make_backends() {
    std::vector<TestBackend> made;
    // 3 is more threads than the rows of many cases, and divides few of them.
    for (const int threads : {1, 2, 3}) add(made, "", {.threads = threads});
    const cpu::Instructions fastest = cpu::fastest_instructions();
    if (fastest > cpu::Instructions::scalar) {
        add(made, ", scalar", {.threads = 2, .instructions = cpu::Instructions::scalar});
    }
    if (fastest > cpu::Instructions::avx2) {
        add(made, ", AVX2", {.threads = 1, .instructions = cpu::Instructions::avx2});
    }
    add_cuda(made);
    return made;
}

}  // namespace

std::vector<TestBackend>& backends() {
    static std::vector<TestBackend> made = make_backends();
    return made;
}

TestBackend* cuda_backend() {
    for (TestBackend& backend : backends()) {
        if (backend.kind == "cuda") return &backend;
    }
    return nullptr;
}

Result<Backend> poisoned_cuda_backend() { return make_cuda(true); }

bool limit_cuda_shared_bytes([[maybe_unused]] std::size_t bytes) {
#ifdef STRATA_EMULATE
    emulator::limit_shared_bytes(bytes);
    return true;
#else
    return false;
#endif
}

CudaCounts CudaCounts::operator-(const CudaCounts& before) const {
    return {kernels - before.kernels,
            launches - before.launches,
            graph_launches - before.graph_launches,
            uploads - before.uploads,
            downloads - before.downloads,
            copies - before.copies,
            waits - before.waits};
}

void PrintTo(const CudaCounts& counts, std::ostream* out) {
    *out << counts.kernels << " kernels, " << counts.launches << " launches, "
         << counts.graph_launches << " of graphs, " << counts.uploads << " uploads, "
         << counts.downloads << " downloads, " << counts.copies << " copies, " << counts.waits
         << " waits";
}

std::optional<CudaCounts> cuda_counts() {
#ifdef STRATA_EMULATE
    const emulator::Counts& all = emulator::counts();
    return CudaCounts{all.kernels,   all.launches, all.graph_launches, all.uploads,
                      all.downloads, all.copies,   all.waits};
#else
    return std::nullopt;
#endif
}

bool fail_cuda_after([[maybe_unused]] int launches) {
#ifdef STRATA_EMULATE
    emulator::fail_after(launches);
    return true;
#else
    return false;
#endif
}

bool hang_cuda_after([[maybe_unused]] int launches) {
#ifdef STRATA_EMULATE
    emulator::hang_after(launches);
    return true;
#else
    return false;
#endif
}

Result<Backend> impatient_cuda_backend([[maybe_unused]] std::chrono::milliseconds limit) {
#ifdef STRATA_EMULATE
    cuda::DeviceOptions options;
    options.wait_limit = limit;
    STRATA_ASSIGN(auto device, cuda::make_device(0, options));
    return Backend{std::move(device), cuda::op_table(0)};
#else
    return STRATA_ERROR("a real device");
#endif
}

bool refuse_cuda_pinned([[maybe_unused]] int calls) {
#ifdef STRATA_EMULATE
    emulator::refuse_pinned(calls);
    return true;
#else
    return false;
#endif
}

std::size_t cuda_memory_taken() {
#ifdef STRATA_EMULATE
    return emulator::memory_taken();
#else
    return 0;
#endif
}

}  // namespace strata::test
