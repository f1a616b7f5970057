// Reads through io_uring, by its system calls alone: one call submits many reads, and their results
// arrive in memory shared with the kernel.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/read_methods.h"

namespace strata {
namespace {

// Reads under way at once; more wait here for their turn.
constexpr unsigned kDepth = 256;

int enter(int ring, unsigned submit, unsigned wait_for, unsigned flags) {
    return static_cast<int>(
        ::syscall(SYS_io_uring_enter, ring, submit, wait_for, flags, nullptr, 0));
}

// A piece of memory shared with the kernel.
class Shared {
  public:
    Shared() = default;
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }

    bool map(int ring, std::size_t bytes, std::uint64_t what) {
        void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                            static_cast<off_t>(what));
        if (data == MAP_FAILED) return false;
        data_ = data;
        bytes_ = bytes;
        return true;
    }
    template <typename T>
    T* at(std::uint32_t offset) const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
    }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// A counter that the other side of a ring reads or writes.
std::atomic_ref<unsigned> shared(unsigned* counter) { return std::atomic_ref<unsigned>(*counter); }

class UringReader final : public BatchReader {
  public:
    explicit UringReader(std::string path) : path_(std::move(path)) {}

    ~UringReader() override { (void)wait(); }

    // False where the system does not have what this needs. Takes the file only if it has.
    bool set_up(Descriptor& file) {
        io_uring_params params{};
        ring_.emplace(static_cast<int>(::syscall(SYS_io_uring_setup, kDepth, &params)));
        // The first kernels with this feature are the first with plain reads.
        constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_RW_CUR_POS;
        if (ring_->get() < 0 || (params.features & kNeeded) != kNeeded) return false;
        const std::size_t queue =
            std::max(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                     params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
        if (!queues_.map(ring_->get(), queue, IORING_OFF_SQ_RING) ||
            !entries_.map(ring_->get(), params.sq_entries * sizeof(io_uring_sqe),
                          IORING_OFF_SQES)) {
            return false;
        }
        submit_tail_ = queues_.at<unsigned>(params.sq_off.tail);
        submit_mask_ = *queues_.at<unsigned>(params.sq_off.ring_mask);
        submit_list_ = queues_.at<unsigned>(params.sq_off.array);
        result_head_ = queues_.at<unsigned>(params.cq_off.head);
        result_tail_ = queues_.at<unsigned>(params.cq_off.tail);
        result_mask_ = *queues_.at<unsigned>(params.cq_off.ring_mask);
        results_ = queues_.at<io_uring_cqe>(params.cq_off.cqes);
        file_.emplace(std::move(file));
        return true;
    }

    void start(std::span<const FileRead> reads) override {
        for (const FileRead& read : reads) {
            waiting_.push_back(static_cast<std::uint32_t>(reads_.size()));
            reads_.push_back({read, 0});
        }
        submit();
    }

    Status wait() override {
        while (under_way_ > 0 || next_ < waiting_.size()) {
            submit();
            if (under_way_ == 0) break;  // nothing can be submitted: the error says why
            const int result = enter(ring_->get(), 0, 1, IORING_ENTER_GETEVENTS);
            STRATA_CHECK(result >= 0 || errno == EINTR || errno == EAGAIN || errno == EBUSY);
            reap();
        }
        reads_.clear();
        waiting_.clear();
        next_ = 0;
        std::optional<Error> error = std::exchange(error_, std::nullopt);
        if (error) return *std::move(error);
        return Ok{};
    }

    ReadMethod method() const override { return ReadMethod::io_uring; }

  private:
    struct Progress {
        FileRead read;
        std::uint32_t have = 0;
    };

    void fail(Error error) {
        if (!error_) error_ = std::move(error);
    }

    void fill(std::uint32_t index) {
        const Progress& progress = reads_[index];
        const unsigned tail = shared(submit_tail_).load(std::memory_order_relaxed);
        const unsigned slot = tail & submit_mask_;
        io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[slot];
        std::memset(&entry, 0, sizeof(entry));
        entry.opcode = IORING_OP_READ;
        entry.fd = file_->get();
        entry.off = progress.read.offset + progress.have;
        entry.addr = reinterpret_cast<std::uintptr_t>(progress.read.to + progress.have);
        entry.len = progress.read.bytes - progress.have;
        entry.user_data = index;
        submit_list_[slot] = slot;
        shared(submit_tail_).store(tail + 1, std::memory_order_release);
    }

    // Hands as many reads to the kernel as may be under way.
    void submit() {
        while (next_ < waiting_.size() && under_way_ < kDepth) {
            unsigned count = 0;
            for (; next_ < waiting_.size() && under_way_ + count < kDepth; ++count) {
                fill(waiting_[next_++]);
            }
            while (count > 0) {
                const int taken = enter(ring_->get(), count, 0, 0);
                if (taken < 0 && (errno == EINTR || errno == EAGAIN || errno == EBUSY)) {
                    reap();
                    continue;
                }
                if (taken <= 0) {  // the ring is unusable: what is left would never end
                    fail(read_failed(path_, reads_[waiting_[next_ - 1]].read, errno));
                    next_ = waiting_.size();
                    return;
                }
                count -= static_cast<unsigned>(taken);
                under_way_ += static_cast<unsigned>(taken);
            }
            reap();
        }
    }

    void reap() {
        unsigned head = shared(result_head_).load(std::memory_order_relaxed);
        const unsigned tail = shared(result_tail_).load(std::memory_order_acquire);
        for (; head != tail; ++head) finish(results_[head & result_mask_]);
        shared(result_head_).store(head, std::memory_order_release);
    }

    void finish(const io_uring_cqe& result) {
        const auto index = static_cast<std::uint32_t>(result.user_data);
        Progress& progress = reads_[index];
        --under_way_;
        if (result.res > 0) progress.have += static_cast<std::uint32_t>(result.res);
        if (progress.have >= progress.read.bytes) return;
        if (result.res > 0 || result.res == -EINTR || result.res == -EAGAIN) {
            waiting_.push_back(index);
        } else if (result.res == 0) {
            fail(file_ended(path_, progress.read, progress.read.offset + progress.have));
        } else {
            fail(read_failed(path_, progress.read, -result.res));
        }
    }

    const std::string path_;
    std::optional<Descriptor> file_;
    std::optional<Descriptor> ring_;
    Shared queues_;
    Shared entries_;
    unsigned* submit_tail_ = nullptr;
    unsigned submit_mask_ = 0;
    unsigned* submit_list_ = nullptr;
    unsigned* result_head_ = nullptr;
    unsigned* result_tail_ = nullptr;
    unsigned result_mask_ = 0;
    const io_uring_cqe* results_ = nullptr;
    std::vector<Progress> reads_;  // since the last wait
    std::vector<std::uint32_t>
        waiting_;  // indices of reads; those from next_ on are to be submitted
    std::size_t next_ = 0;
    unsigned under_way_ = 0;
    std::optional<Error> error_;
};

}  // namespace

std::unique_ptr<BatchReader> make_uring_reader(const std::string& path, Descriptor& file) {
    auto reader = std::make_unique<UringReader>(path);
    return reader->set_up(file) ? std::move(reader) : nullptr;
}

}  // namespace strata
