// Reads by threads that each wait for one read at a time.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/read_methods.h"

namespace strata {
namespace {

// Reads under way at once. Disks reach their rate with about as many.
constexpr int kReadThreads = 16;

class ThreadReader final : public BatchReader {
  public:
    ThreadReader(std::string path, Descriptor file)
        : path_(std::move(path)), file_(std::move(file)) {
        for (int i = 0; i < kReadThreads; ++i) {
            try {
                threads_.emplace_back([this] { work(); });
            } catch (const std::system_error&) {
                break;  // without any, wait() does the reads
            }
        }
    }

    ~ThreadReader() override {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    void start(std::span<const FileRead> reads) override {
        {
            const std::lock_guard lock(mutex_);
            reads_.insert(reads_.end(), reads.begin(), reads.end());
        }
        wake_.notify_all();
    }

    Status wait() override {
        std::unique_lock lock(mutex_);
        while (next_ < reads_.size()) run_next(lock);
        idle_.wait(lock, [this] { return done_ == reads_.size(); });
        reads_.clear();
        next_ = 0;
        done_ = 0;
        std::optional<Error> error = std::exchange(error_, std::nullopt);
        if (error) return *std::move(error);
        return Ok{};
    }

    ReadMethod method() const override { return ReadMethod::threads; }

  private:
    void work() {
        std::unique_lock lock(mutex_);
        while (true) {
            wake_.wait(lock, [this] { return stopping_ || next_ < reads_.size(); });
            if (stopping_) return;
            run_next(lock);
        }
    }

    // Called and left with the lock held.
    void run_next(std::unique_lock<std::mutex>& lock) {
        const FileRead read = reads_[next_++];
        lock.unlock();
        Status status = run(read);
        lock.lock();
        if (!status.ok() && !error_) error_ = std::move(status).error();
        if (++done_ == reads_.size()) idle_.notify_all();
    }

    Status run(const FileRead& read) const {
        std::uint32_t have = 0;
        while (have < read.bytes) {
            const ssize_t got = ::pread(file_.get(), read.to + have, read.bytes - have,
                                        static_cast<off_t>(read.offset + have));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return read_failed(path_, read, errno);
            if (got == 0) return file_ended(path_, read, read.offset + have);
            have += static_cast<std::uint32_t>(got);
        }
        return Ok{};
    }

    const std::string path_;
    const Descriptor file_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable idle_;
    std::vector<FileRead> reads_;
    std::size_t next_ = 0;
    std::size_t done_ = 0;
    std::optional<Error> error_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BatchReader> make_thread_reader(const std::string& path, Descriptor file) {
    return std::make_unique<ThreadReader>(path, std::move(file));
}

}  // namespace strata
