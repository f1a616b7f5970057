// The CPU backend's queue: runs each op at once, on the threads that all queues of a device share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "backend/cpu/instructions.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "device/tensor.h"

namespace strata::cpu {

// Memory for the length of one op. It grows while ops grow; once an op as large has run, later ones
// allocate nothing.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();

    // Forgets everything taken. std::bad_alloc where the machine has no memory left, as of take.
    void reset();

    // Uninitialized, aligned to kBufferAlignment; valid until reset.
    std::byte* take(std::size_t bytes);

  private:
    struct Block {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
    };

    void add_block(std::size_t bytes);
    void free_blocks();

    std::vector<Block> blocks_;
    std::size_t used_ = 0;   // of the last block
    std::size_t taken_ = 0;  // of all blocks, since reset
};

struct DeviceOptions {
    int threads = 1;              // that run each op together
    Instructions instructions{};  // the machine must have them
    // For tests: memory for the length of an op is NaN (and -1) when it is handed out, so that what
    // reads it unwritten shows.
    bool poison = false;
};

// Pieces of work that one thread begins with, in order, and that others help it with.
struct alignas(64) Pieces {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
};

// What all queues of a device share. One parallel_for at a time, whichever queue asks.
struct SharedPool {
    explicit SharedPool(const DeviceOptions& options)
        : pool(options.threads),
          pieces(static_cast<std::size_t>(pool.size())),
          instructions(options.instructions),
          poison(options.poison) {}
    ThreadPool pool;
    std::vector<Pieces> pieces;  // of each thread
    const Instructions instructions;
    const bool poison;
    std::mutex mutex;
};

class Queue final : public device::Queue {
  public:
    explicit Queue(SharedPool& shared) : shared_(shared) {}

    void wait() override {}  // ops have run when their call returns
    Status status() const override;

    // Runs an op, unless an earlier one found no memory. Ops have no way to tell that: from then on
    // the queue does.
    template <typename Op>
    void run_op(const Op& op) {
        if (failed_) return;
        try {
            op();
        } catch (const std::bad_alloc&) {
            failed_ = true;
        }
    }
    bool failed() const { return failed_; }

    bool observe(device::InputObserver* observer) override {
        observer_ = observer;
        return true;
    }
    // Null: none.
    device::InputObserver* observer() const { return observer_; }

    int threads() const { return alone_ ? 1 : shared_.pool.size(); }
    Instructions instructions() const { return shared_.instructions; }

    // Uninitialized memory until the next op of this queue.
    template <typename T>
    T* take(std::int64_t count) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
        std::byte* data = arena_.take(bytes);
        if (shared_.poison) std::memset(data, 0xff, bytes);
        return reinterpret_cast<T*>(data);
    }
    MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) {
        return {take<float>(rows * cols), rows, cols};
    }

    // Runs body(begin, end, thread) over parts of [0, count). `cost` is what one element takes, in
    // multiply-adds: where the whole is not worth waking threads for, this thread does it alone.
    template <typename Body>
    void split(std::int64_t count, std::int64_t cost, const Body& body) {
        if (count <= 0) return;
        if (threads() == 1 || count * cost < kSplitCost) {
            body(std::int64_t{0}, count, 0);
            return;
        }
        const std::lock_guard lock(shared_.mutex);
        shared_.pool.parallel_for(count, body);
    }

    // Runs body(piece, thread) for each piece of [0, count). Thread t begins with those from cut(t)
    // up to cut(t + 1), which follow each other in memory, and then takes what others have not come
    // to: what a piece takes, and what else the cores do, is not known. cut(0) = 0 and
    // cut(threads()) = count; `cost` is that of all pieces, as for split.
    template <typename Cut, typename Body>
    void share(std::int64_t count, std::int64_t cost, const Cut& cut, const Body& body) {
        const int all = threads();
        if (all == 1 || count <= 1 || cost < kSplitCost) {
            for (std::int64_t piece = 0; piece < count; ++piece) body(piece, 0);
            return;
        }
        const std::lock_guard lock(shared_.mutex);
        for (int t = 0; t < all; ++t) {
            Pieces& own = shared_.pieces[static_cast<std::size_t>(t)];
            own.next.store(cut(t), std::memory_order_relaxed);
            own.end = cut(t + 1);
        }
        shared_.pool.parallel_for(all, [&](std::int64_t, std::int64_t, int thread) {
            for (int i = 0; i < all; ++i) {
                Pieces& from = shared_.pieces[static_cast<std::size_t>((thread + i) % all)];
                const auto take = [&] { return from.next.fetch_add(1, std::memory_order_relaxed); };
                for (std::int64_t piece = take(); piece < from.end; piece = take()) {
                    body(piece, thread);
                }
            }
        });
    }

    // Rows of a block whose values, and small weights, fit a core's cache; whole tiles of what
    // products are made for.
    static constexpr std::int64_t kBlockRows = 36;
    // Of which a larger block has a multiple: kPackedTile rows.
    static constexpr std::int64_t kBlockStep = 12;

    // Whether so many rows are worth dividing by_rows.
    bool divides_rows(std::int64_t rows) const { return !alone_ && rows >= kDividedRows; }
    // Rows of a block where each thread should have one: whole tiles of packed.h.
    std::int64_t rows_a_thread(std::int64_t rows) const {
        return (rows / threads() / kBlockStep + 1) * kBlockStep;
    }

    // Runs body(one, begin, end) for blocks of rows that cover [0, rows). `one` is a queue for the
    // thread that runs the block, with which it may do whatever ops do with theirs, and whose
    // memory is taken back after the block: so that what is made of a row stays in the thread's
    // caches, and threads meet once. Not from inside a body.
    template <typename Body>
    void by_rows(std::int64_t rows, std::int64_t block_rows, const Body& body) {
        while (lanes_.size() < static_cast<std::size_t>(threads())) {
            lanes_.push_back(std::unique_ptr<Queue>(new Queue(shared_, true)));
            lanes_.back()->take<std::byte>(1);  // now, not when its thread first gets a block
        }
        const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
        const auto cut = [&](std::int64_t thread) { return blocks * thread / threads(); };
        share(blocks, kSplitCost, cut, [&](std::int64_t block, int thread) {
            Queue& one = *lanes_[static_cast<std::size_t>(thread)];
            one.arena_.reset();
            body(one, block * block_rows, std::min(rows, (block + 1) * block_rows));
        });
    }

  private:
    friend Queue& begin_op(device::Queue& queue);
    Queue(SharedPool& shared, bool alone) : shared_(shared), alone_(alone) {}

    static constexpr std::int64_t kDividedRows = 64;     // rows
    static constexpr std::int64_t kSplitCost = 1 << 16;  // cycles

    SharedPool& shared_;
    const bool alone_ = false;
    bool failed_ = false;
    Arena arena_;
    std::vector<std::unique_ptr<Queue>> lanes_;  // of by_rows, one a thread
    device::InputObserver* observer_ = nullptr;
};

// The queue as what it is, its scratch memory empty. Every op starts with it.
Queue& begin_op(device::Queue& queue);

}  // namespace strata::cpu
