#include "model/row_reader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace strata::model {

Result<std::unique_ptr<RowReader>> RowReader::open(const StoredTable& table,
                                                   std::int64_t request_max,
                                                   std::int64_t cache_bytes, ReadMethod method) {
    STRATA_CHECK(table.row_bytes > 0 && request_max > 0);
    STRATA_ASSIGN(std::unique_ptr<BatchReader> reader, BatchReader::open(table.path, method));
    const std::int64_t fit =
        std::min({cache_bytes / table.row_bytes, table.rows, std::int64_t{INT32_MAX}});
    const std::int64_t slots = std::max(2 * request_max, fit);
    const auto bytes = static_cast<std::size_t>(slots) * static_cast<std::size_t>(table.row_bytes);
    Memory memory;
    try {
        memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    } catch (const std::bad_alloc&) {
        return STRATA_ERROR("no room for ", bytes, " bytes of rows of ", quote(table.path));
    }
    return std::unique_ptr<RowReader>(
        new RowReader(table, slots, std::move(memory), std::move(reader)));
}

RowReader::RowReader(const StoredTable& table, std::int64_t slots, Memory memory,
                     std::unique_ptr<BatchReader> reader)
    : table_(table), memory_(std::move(memory)), reader_(std::move(reader)), cache_(slots) {}

void RowReader::start(std::span<const std::int64_t> rows) {
    // What a start without a finish left under way fills slots that may be given away now.
    if (!reads_.empty() && !reader_->wait().ok()) cache_.clear();
    cache_.begin_round();
    reads_.clear();
    wanted_.clear();
    for (const std::int64_t row : rows) {
        STRATA_CHECK(row >= 0 && row < table_.rows);
        std::int64_t at = cache_.find(row);
        if (at < 0) {
            at = cache_.insert(row);
            reads_.push_back(
                {.offset = table_.offset + static_cast<std::uint64_t>(row) *
                                               static_cast<std::uint64_t>(table_.row_bytes),
                 .bytes = static_cast<std::uint32_t>(table_.row_bytes),
                 .to = slot(at)});
        }
        wanted_.push_back(at);
    }
    const auto missing = static_cast<std::int64_t>(reads_.size());
    counters_.misses += missing;
    counters_.hits += static_cast<std::int64_t>(rows.size()) - missing;
    if (missing > 0) reader_->start(reads_);
}

Status RowReader::finish(std::byte* to) {
    if (!reads_.empty()) {
        reads_.clear();
        const auto start = std::chrono::steady_clock::now();
        Status status = reader_->wait();
        const std::chrono::duration<double, std::milli> waited =
            std::chrono::steady_clock::now() - start;
        counters_.wait_ms += waited.count();
        if (!status.ok()) {
            cache_.clear();
            return status;
        }
    }
    const auto bytes = static_cast<std::size_t>(table_.row_bytes);
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
        std::memcpy(to + i * bytes, slot(wanted_[i]), bytes);
    }
    return Ok{};
}

}  // namespace strata::model
