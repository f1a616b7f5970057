// How long a file takes until its model answers.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "backend/choose.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "bench/clock.h"
#include "model/sequence.h"

namespace strata {
namespace {

constexpr std::int64_t kReadBytes = std::int64_t{1} << 18;
// Above this share of the file in the page cache, a load says nothing of the disk.
constexpr double kColdShareMax = 0.01;

class Descriptor {
  public:
    explicit Descriptor(const std::string& path)
        : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }

  private:
    int fd_;
};

// Pages of these files that the page cache holds, as a share.
Result<double> cached_share(std::span<const std::string> paths) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::size_t pages = 0;
    std::size_t present = 0;
    for (const std::string& path : paths) {
        STRATA_ASSIGN(const MappedFile file, MappedFile::open(path));
        const auto bytes = file.bytes();
        std::vector<unsigned char> states((bytes.size() + page - 1) / page);
        if (bytes.empty()) continue;
        ::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), states.data());
        pages += states.size();
        for (const unsigned char state : states) present += state & 1;
    }
    return pages == 0 ? 0 : static_cast<double>(present) / static_cast<double>(pages);
}

// Asks the system to forget the files; what another process maps stays.
void drop(std::span<const std::string> paths) {
    for (const std::string& path : paths) {
        const Descriptor file(path);
        if (file.get() >= 0) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
}

// Reads the files in order, each with all threads.
Result<double> read_ms(std::span<const std::string> paths, ThreadPool& pool) {
    const bench::Clock clock;
    for (const std::string& path : paths) {
        const Descriptor file(path);
        struct stat info {};
        if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
            return STRATA_ERROR("cannot read ", quote(path), ": ", std::strerror(errno));
        }
        const std::int64_t parts = (info.st_size + kReadBytes - 1) / kReadBytes;
        std::atomic<std::int64_t> next = 0;
        std::atomic<int> failure = 0;
        pool.parallel_for(pool.size(), [&](std::int64_t, std::int64_t, int) {
            std::vector<char> buffer(static_cast<std::size_t>(kReadBytes));
            for (std::int64_t part = next++; part < parts; part = next++) {
                if (::pread(file.get(), buffer.data(), buffer.size(), part * kReadBytes) < 0) {
                    failure = errno;
                }
            }
        });
        if (failure != 0) {
            return STRATA_ERROR("cannot read ", quote(path), ": ", std::strerror(failure));
        }
    }
    return clock.ms();
}

std::uint64_t peak_resident_bytes() {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

struct Loaded {
    double ready_ms = 0;
    double first_token_ms = 0;
    std::int32_t token = 0;
};

Result<Loaded> load_once(const BenchOptions& request) {
    Loaded out;
    const bench::Clock loading;
    STRATA_ASSIGN(const auto engine, Engine::load(request.model));
    out.ready_ms = loading.ms();
    const bench::Clock answering;
    GenerateRequest generate;
    generate.keep_states = false;
    generate.prompt = {static_cast<std::int32_t>(
        request.seed % static_cast<std::uint64_t>(engine->info().vocabulary))};
    generate.max_tokens = 1;
    generate.ignore_end_tokens = true;
    STRATA_ASSIGN(Session session, engine->make_session());
    STRATA_ASSIGN(const Completion completion, session.generate(generate));
    out.first_token_ms = answering.ms();
    out.token = completion.tokens.front();
    return out;
}

struct Files {
    std::vector<std::string> paths;
    std::uint64_t bytes = 0;
    std::uint64_t state_bytes = 0;
};

Result<Files> files_of(const BenchOptions& request) {
    STRATA_ASSIGN(const gguf::File file, gguf::File::open(request.model.model));
    STRATA_ASSIGN(const model::Config config, model::config_from_gguf(file));
    const std::int64_t context = request.model.context;
    return Files{{file.paths().begin(), file.paths().end()},
                 file.total_bytes(),
                 model::Sequence::state_bytes(config, {context == 0 ? config.context : context,
                                                       cache_type(request.model.cache), false})};
}

}  // namespace

Result<LoadBench> bench_load(const BenchOptions& request, const BenchProgress& progress) {
    if (request.repeats < 1) {
        return STRATA_ERROR(request.repeats, " repeats were asked for, wanted at least 1");
    }
    STRATA_ASSIGN(const Files files, files_of(request));
    const int threads = request.model.threads;
    if (threads < 0 || threads > kThreadsMax) {
        return STRATA_ERROR("the thread count is ", threads, ", wanted 1 to ", kThreadsMax,
                            ", or 0 for all cores");
    }
    ThreadPool pool(threads == 0 ? available_threads() : threads);
    LoadBench out;
    out.file_bytes = files.bytes;
    out.state_bytes = files.state_bytes;
    std::vector<double> reads;
    std::vector<double> ready;
    std::vector<double> first;
    for (std::int64_t repeat = 0; repeat < request.repeats; ++repeat) {
        if (progress && !progress(repeat, request.repeats)) return bench::ended();
        for (const bool loading : {false, true}) {
            drop(files.paths);
            STRATA_ASSIGN(const double share, cached_share(files.paths));
            out.in_cache = std::max(out.in_cache, share);
            if (!loading) {
                STRATA_ASSIGN(const double ms, read_ms(files.paths, pool));
                reads.push_back(ms);
                continue;
            }
            STRATA_ASSIGN(const Loaded loaded, load_once(request));
            ready.push_back(loaded.ready_ms);
            first.push_back(loaded.first_token_ms);
            out.first_token = loaded.token;
        }
    }
    out.cold = out.in_cache <= kColdShareMax;
    out.read_ms = bench::spread(reads);
    out.ready_ms = bench::spread(ready);
    out.first_token_ms = bench::spread(first);
    out.resident_bytes = peak_resident_bytes();
    return out;
}

}  // namespace strata
