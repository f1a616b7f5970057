#include "model/row_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "tests/model/tiny_target.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

std::unique_ptr<model::RowReader> open_reader(const model::StoredTable& table,
                                              std::int64_t request_max, std::int64_t cache_bytes,
                                              ReadMethod method) {
    auto reader = model::RowReader::open(table, request_max, cache_bytes, method);
    if (!reader.ok()) std::abort();
    return std::move(reader).value();
}

using model::RowCache;

// Against a plain map, over far more rows than slots.
TEST(RowCache, slots_hold_what_was_put_in_them_and_a_round_keeps_its_own) {
    constexpr std::int64_t kSlots = 64;
    constexpr int kRequest = 30;
    RowCache cache(kSlots);
    Random random("cache");
    std::map<std::int64_t, std::int64_t> row_at;  // by slot
    std::int64_t hits = 0;
    for (int round = 0; round < 2000; ++round) {
        cache.begin_round();
        std::set<std::int64_t> used;
        for (int i = 0; i < kRequest; ++i) {
            const std::int64_t row = random.integer(0, i % 2 == 0 ? 40 : 100000);
            std::int64_t slot = cache.find(row);
            if (slot >= 0) {
                ASSERT_EQ(row_at.at(slot), row);
                ++hits;
            } else {
                for (const auto& [other, held] : row_at) ASSERT_NE(held, row) << other;
                slot = cache.insert(row);
                ASSERT_FALSE(used.contains(slot));
                row_at[slot] = row;
            }
            ASSERT_TRUE(slot >= 0 && slot < kSlots);
            used.insert(slot);
        }
    }
    EXPECT_GT(hits, 2000 * kRequest / 4);  // rows that come again and again mostly stay
    cache.clear();
    EXPECT_EQ(cache.find(row_at.begin()->second), -1);
}

constexpr std::int64_t kRows = 3000;
constexpr std::int64_t kRowBytes = 18;
constexpr std::int64_t kOffset = 7;

struct TableFile {
    TableFile() {
        Random random("table");
        bytes.resize(kOffset + kRows * kRowBytes);
        for (char& byte : bytes) byte = static_cast<char>(random.bits());
        table = {folder / "table", kOffset, kRows, kRowBytes};
        write_file(table.path, bytes);
    }
    TempDir folder;
    std::string bytes;
    model::StoredTable table;
};

TEST(RowReader, rows_are_those_of_the_file_whatever_is_cached) {
    TableFile file;
    for (const ReadMethod method : {ReadMethod::automatic, ReadMethod::threads}) {
        auto reader = open_reader(file.table, 40, 100 * kRowBytes, method);
        Random random("requests");
        std::vector<std::byte> got(40 * kRowBytes);
        std::int64_t all = 0;
        for (int request = 0; request < 300; ++request) {
            std::vector<std::int64_t> rows(static_cast<std::size_t>(random.integer(1, 40)));
            for (std::int64_t& row : rows)
                row = random.integer(0, request % 3 == 0 ? 30 : kRows - 1);
            reader->start(rows);
            if (request % 7 == 0) continue;  // a step that ended before it needed them
            ASSERT_TRUE(reader->finish(got.data()).ok());
            all += static_cast<std::int64_t>(rows.size());
            for (std::size_t i = 0; i < rows.size(); ++i) {
                ASSERT_EQ(std::memcmp(got.data() + i * kRowBytes,
                                      file.bytes.data() + kOffset + rows[i] * kRowBytes, kRowBytes),
                          0);
            }
        }
        EXPECT_GT(reader->counters().hits, 0);
        EXPECT_GE(reader->counters().hits + reader->counters().misses, all);
    }
}

TEST(RowReader, a_truncated_file_is_an_error_and_leaves_nothing_cached) {
    TableFile file;
    auto reader = open_reader(file.table, 4, 0, ReadMethod::automatic);
    std::vector<std::byte> got(4 * kRowBytes);
    ASSERT_EQ(::truncate(file.table.path.c_str(), kOffset + 10 * kRowBytes), 0);
    const std::int64_t rows[] = {3, 2000};
    for (int attempt = 0; attempt < 2; ++attempt) {  // the second must not find row 2000 cached
        reader->start(rows);
        EXPECT_FALSE(reader->finish(got.data()).ok());
    }
    reader->start(std::span(rows).first(1));
    ASSERT_TRUE(reader->finish(got.data()).ok());
    EXPECT_EQ(std::memcmp(got.data(), file.bytes.data() + kOffset + 3 * kRowBytes, kRowBytes), 0);
}

TEST(RowReader, a_model_that_reads_its_table_from_the_file_gives_the_same_bits) {
    TinyTarget mapped;
    TinyTarget read({.ngram = {.cache_bytes = 1}});
    const Tokens tokens = random_tokens("table", 70, mapped->config());
    for (const std::int64_t rows : {1, 7, 64}) {
        model::Sequence one = mapped.sequence();
        model::Sequence other = read.sequence();
        expect_same_bits("table read from the file", read.run(other, tokens, rows, false),
                         mapped.run(one, tokens, rows, false));
    }
    EXPECT_EQ(mapped->ngram_counters().misses, 0);
    EXPECT_GT(read->ngram_counters().misses, 0);
}

// SPEC-20: a step whose rows are all cached has no read to wait for, guesses or not.
TEST(RowReader, a_verify_window_of_known_rows_waits_for_no_read) {
    TinyTarget target({.ngram = {.cache_bytes = 1 << 20}});
    const Tokens tokens = random_tokens("table", 72, target->config());
    model::Sequence first = target.sequence();
    target.run(first, tokens, 4, true);
    const model::RowCounters cold = target->ngram_counters();
    EXPECT_GT(cold.misses, 0);
    EXPECT_GT(cold.wait_ms, 0);
    for (const std::int64_t rows : {1, 3, 8}) {
        model::Sequence again = target.sequence();
        target.run(again, tokens, rows, true);
    }
    const model::RowCounters warm = target->ngram_counters();
    EXPECT_GT(warm.hits, cold.hits);
    EXPECT_EQ(warm.misses, cold.misses);
    EXPECT_EQ(warm.wait_ms, cold.wait_ms);
}

}  // namespace
}  // namespace strata::test
