// Threads of a block are fibers: each runs until it waits at a barrier, then the next one's turn
// comes. Started by ucontext, switched by _longjmp, which asks the kernel for nothing.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace emulator {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;

// `generation` counts how often all have come.
struct Barrier {
    int arrived = 0;
    int generation = 0;
};

struct Fiber {
    std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    ucontext_t start;
    jmp_buf state;
    bool started = false;
    bool ended = true;
};

struct Warp {
    Barrier barrier;
    int running = 0;
    Lanes lanes;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier barrier;
    int running = 0;
    int current = 0;
    jmp_buf scheduler;
    ucontext_t first;
    const std::function<void()>* thread = nullptr;
};

Block block;
alignas(128) std::byte shared[kSharedBytesMost];

dim3 index_of(int thread) {
    const auto i = static_cast<unsigned>(thread);
    return {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
}

Warp& current_warp() { return block.warps[static_cast<std::size_t>(block.current / 32)]; }

// Those that wait for one that has ended wait no more.
void release(Barrier& barrier, int running) {
    if (barrier.arrived < running || running == 0) return;
    barrier.arrived = 0;
    ++barrier.generation;
}

void run_fiber() {
    (*block.thread)();
    block.fibers[static_cast<std::size_t>(block.current)].ended = true;
    Warp& warp = current_warp();
    release(warp.barrier, --warp.running);
    release(block.barrier, --block.running);
    _longjmp(block.scheduler, 1);
}

void resume(int thread) {
    Fiber& fiber = block.fibers[static_cast<std::size_t>(thread)];
    block.current = thread;
    threadIdx = index_of(thread);
    if (_setjmp(block.scheduler) != 0) return;
    if (fiber.started) _longjmp(fiber.state, 1);
    fiber.started = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, run_fiber, 0);
    setcontext(&fiber.start);
}

void yield() {
    if (_setjmp(block.fibers[static_cast<std::size_t>(block.current)].state) == 0) {
        _longjmp(block.scheduler, 1);
    }
}

void wait_at(Barrier& barrier, int running) {
    const int generation = barrier.generation;
    ++barrier.arrived;
    release(barrier, running);
    while (barrier.generation == generation) yield();
}

void run_block(int threads) {
    block.barrier = {};
    block.running = threads;
    for (Warp& warp : block.warps) warp = {};
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = block.fibers[static_cast<std::size_t>(i)];
        fiber.started = false;
        fiber.ended = false;
        ++block.warps[static_cast<std::size_t>(i / 32)].running;
    }
    while (block.running > 0) {
        for (int i = 0; i < threads; ++i) {
            if (!block.fibers[static_cast<std::size_t>(i)].ended) resume(i);
        }
    }
}

}  // namespace

void run(dim3 grid, dim3 threads, std::size_t shared_bytes, const std::function<void()>& thread) {
    const unsigned count = threads.x * threads.y * threads.z;
    if (count == 0 || count > 1024 || shared_bytes > kSharedBytesMost || grid.x == 0) {
        std::fputs("a kernel was launched with more than a block may have\n", stderr);
        std::abort();
    }
    if (block.fibers.size() < count) block.fibers.resize(count);
    block.warps.resize((count + 31) / 32);
    block.thread = &thread;
    gridDim = grid;
    blockDim = threads;
    for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x; ++x) {
                blockIdx = {x, y, z};
                std::memset(shared, 0xff, shared_bytes);
                run_block(static_cast<int>(count));
            }
        }
    }
}

std::byte* dynamic_shared() { return shared; }
void block_barrier() { wait_at(block.barrier, block.running); }
void warp_barrier() {
    Warp& warp = current_warp();
    wait_at(warp.barrier, warp.running);
}

Lanes exchange(std::uint64_t value) {
    Warp& warp = current_warp();
    warp.lanes.value[block.current % 32] = value;
    warp_barrier();
    const Lanes lanes = warp.lanes;
    warp_barrier();
    return lanes;
}

}  // namespace emulator
