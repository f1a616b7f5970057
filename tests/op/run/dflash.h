// Calls of the dflash ops in watched memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/op/oracle/cache.h"
#include "tests/op/oracle/dflash.h"
#include "tests/support/rig.h"

namespace strata::test {

// The cells of one layer: each slot with its position or -1, and poison in the free ones.
struct DflashRing {
    op::CacheRow row;
    std::int64_t slots = 0;
    std::vector<std::int32_t> position;
    std::vector<std::byte> keys;
    std::vector<std::byte> values;

    std::vector<float> key(std::int64_t slot) const {
        return cached_values(row, keys.data() + slot * row.bytes());
    }
    std::vector<float> value(std::int64_t slot) const {
        return cached_values(row, values.data() + slot * row.bytes());
    }
};
void expect_same_output(const std::string& what, const std::vector<DflashRing>& got,
                        const std::vector<DflashRing>& want);

DflashRing empty_ring(const DflashDraft& draft, op::CacheType type, std::int64_t slots);
// Puts a cell with random values into its slot.
void put_cell(DflashRing& ring, Random& random, std::int64_t position);
std::vector<DflashCell> cells_of(const DflashRing& ring);

struct DflashInjected {
    std::vector<DflashRing> rings;
    std::vector<std::int32_t> replaced;
};
void expect_same_output(const std::string& what, const DflashInjected& got,
                        const DflashInjected& want);

DflashInjected run_inject(TestBackend& backend, const std::string& label, const DflashDraft& draft,
                          const std::vector<float>& features, std::int64_t first,
                          const std::vector<DflashRing>& rings);

std::vector<float> run_block(TestBackend& backend, const std::string& label,
                             const DflashDraft& draft, const std::vector<std::int32_t>& tokens,
                             std::int64_t first, const std::vector<DflashRing>& rings);

struct DflashWalked {
    std::vector<std::int32_t> candidates;
    std::vector<float> scores;
    std::vector<std::int32_t> path;
    std::vector<float> confidence;
    std::int32_t rows = 0;
};
void expect_same_output(const std::string& what, const DflashWalked& got, const DflashWalked& want);

DflashWalked run_select(TestBackend& backend, const std::string& label,
                        const DflashSelector& selector, const std::vector<float>& hidden,
                        const std::vector<float>& logits, std::int64_t vocabulary_rows,
                        std::int32_t anchor, const DflashRule* rule = nullptr);

}  // namespace strata::test
