// Rows of an n-gram table, drawn at random, from a disk whose cache holds nothing of the file:
//
//   bench_rows MODEL.gguf
//
// By io_uring, by threads, and as they come where the table is mapped. A token wants a row of each
// head; 512 tokens are a prompt's chunk. Each request is waited for; a model does its first layers
// meanwhile.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/reader.h"
#include "model/row_reader.h"

namespace {

using strata::ReadMethod;

constexpr int kRequests = 8;
constexpr std::int64_t kCacheBytes = 0;  // as small as it gets

void drop_cached(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
}

class Rows {
  public:
    explicit Rows(const strata::model::StoredTable& table) : table_(table) {}

    // Milliseconds of each request of `count` rows through the reader; empty where there is none.
    std::vector<double> by_reader(std::int64_t count, ReadMethod method) {
        auto reader = strata::model::RowReader::open(table_, count, kCacheBytes, method);
        if (!reader.ok()) return {};
        std::vector<std::byte> to(static_cast<std::size_t>(count * table_.row_bytes));
        return times(count, [&](const std::vector<std::int64_t>& rows) {
            (*reader)->start(rows);
            return (*reader)->finish(to.data()).ok();
        });
    }

    std::vector<double> mapped(std::int64_t count) {
        std::vector<std::byte> to(static_cast<std::size_t>(count * table_.row_bytes));
        drop_cached(table_.path);
        const auto file = strata::MappedFile::open(table_.path);
        if (!file.ok()) return {};
        strata::expect_scattered_reads(file->bytes());
        return times(count, [&](const std::vector<std::int64_t>& rows) {
            std::byte* out = to.data();
            for (const std::int64_t row : rows) {
                const auto at = table_.offset + static_cast<std::uint64_t>(row * table_.row_bytes);
                std::memcpy(out, file->bytes().data() + at,
                            static_cast<std::size_t>(table_.row_bytes));
                out += table_.row_bytes;
            }
            return true;
        });
    }

  private:
    template <typename Read>
    std::vector<double> times(std::int64_t count, const Read& read) {
        drop_cached(table_.path);
        std::vector<double> ms;
        std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
        for (int request = 0; request < kRequests; ++request) {
            for (std::int64_t& row : rows) {
                row = static_cast<std::int64_t>(draw_() % static_cast<std::uint64_t>(table_.rows));
            }
            const auto start = std::chrono::steady_clock::now();
            if (!read(rows)) return {};
            const std::chrono::duration<double, std::milli> taken =
                std::chrono::steady_clock::now() - start;
            ms.push_back(taken.count());
        }
        std::sort(ms.begin(), ms.end());
        return ms;
    }

    strata::model::StoredTable table_;
    std::mt19937_64 draw_{1};
};

void print(const char* name, std::int64_t count, const std::vector<double>& ms) {
    if (ms.empty()) {
        std::printf("%6lld rows, %-8s not to be had\n", static_cast<long long>(count), name);
        return;
    }
    const double median = ms[ms.size() / 2];
    std::printf("%6lld rows, %-8s %9.3f ms (%.3f to %.3f), %7.2f us a row\n",
                static_cast<long long>(count), name, median, ms.front(), ms.back(),
                1e3 * median / static_cast<double>(count));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: bench_rows MODEL.gguf\n");
        return 2;
    }
    const auto file = strata::gguf::File::open(argv[1]);
    const strata::gguf::Tensor* table =
        file.ok() ? file->find_tensor("per_layer_token_embd.weight") : nullptr;
    if (table == nullptr) {
        std::fprintf(stderr, "%s: no model with an n-gram table\n", argv[1]);
        return 1;
    }
    const auto rows = static_cast<std::int64_t>(table->shape[1]);
    const auto bytes = static_cast<std::int64_t>(table->data.size());
    std::printf("%lld rows of %lld bytes, %.2f GB\n", static_cast<long long>(rows),
                static_cast<long long>(bytes / rows), static_cast<double>(bytes) / 1e9);
    Rows bench({.path = file->paths()[table->shard],
                .offset = table->offset,
                .rows = rows,
                .row_bytes = bytes / rows});
    for (const std::int64_t count : {std::int64_t{16}, std::int64_t{16 * 512}}) {
        print("io_uring", count, bench.by_reader(count, ReadMethod::io_uring));
        print("threads", count, bench.by_reader(count, ReadMethod::threads));
        print("mapped", count, bench.mapped(count));
    }
    return 0;
}
