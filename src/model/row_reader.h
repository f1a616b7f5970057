// Rows of a table too large for memory, read from its file as they are needed. Which rows a step
// needs is known before it begins, so that their reads run while the layers before do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/batch_reader.h"
#include "base/result.h"
#include "model/row_cache.h"

namespace strata::model {

// Where a table lies: rows of `row_bytes` from `offset` of a file on.
struct StoredTable {
    std::string path;
    std::uint64_t offset = 0;
    std::int64_t rows = 0;
    std::int64_t row_bytes = 0;
};

struct RowCounters {
    std::int64_t hits = 0;    // rows found in the cache, repeats within a request among them
    std::int64_t misses = 0;  // rows read from the file
    double wait_ms = 0;       // that finish() waited for reads
};

class RowReader {
  public:
    // Keeps up to `cache_bytes` of rows, or what two requests of `request_max` rows need if that
    // is more. Errors: those of BatchReader::open; not enough memory.
    static Result<std::unique_ptr<RowReader>> open(const StoredTable& table,
                                                   std::int64_t request_max,
                                                   std::int64_t cache_bytes, ReadMethod method);

    // Starts reading what is missing of `rows`, each in [0, table.rows), and returns.
    void start(std::span<const std::int64_t> rows);
    // Copies the rows of the last start, in its order, to `to`. Error: a read failed or the file
    // ended; then nothing stays cached.
    Status finish(std::byte* to);

    const RowCounters& counters() const { return counters_; }
    ReadMethod method() const { return reader_->method(); }

  private:
    // Uninitialized: slots that are never used take no memory.
    using Memory = std::unique_ptr<std::byte[]>;

    RowReader(const StoredTable& table, std::int64_t slots, Memory memory,
              std::unique_ptr<BatchReader> reader);

    std::byte* slot(std::int64_t i) { return memory_.get() + i * table_.row_bytes; }

    const StoredTable table_;
    Memory memory_;                        // of the slots
    std::unique_ptr<BatchReader> reader_;  // ends before the memory that it fills
    RowCache cache_;
    std::vector<std::int64_t> wanted_;  // slots of the rows of the last start
    std::vector<FileRead> reads_;
    RowCounters counters_;
};

}  // namespace strata::model
