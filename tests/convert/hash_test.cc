#include "convert/ngram_hash.h"

#include <gtest/gtest.h>

#include "tests/convert/convert_case.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

model::NgramConfig derived(std::uint64_t vocabulary, std::uint64_t base, int size, int heads,
                           std::uint64_t seed = convert::kHashSeedDefault) {
    model::NgramConfig ngram;
    ngram.size = size;
    ngram.heads_per_ngram = heads;
    EXPECT_TRUE(convert::derive_hash(vocabulary, base, seed, ngram).ok());
    return ngram;
}

// The table rows of the last token of `tokens` (newest first, end token where there is none).
std::vector<std::uint64_t> rows_of(const model::NgramConfig& ngram,
                                   const std::vector<std::uint64_t>& tokens) {
    std::vector<std::uint64_t> rows;
    for (int n = 2; n <= ngram.size; ++n) {
        std::uint64_t mixed = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
            mixed ^= tokens[i] * ngram.multipliers[i];
        }
        for (int h = 0; h < ngram.heads_per_ngram; ++h) {
            rows.push_back(mixed % ngram.vocabulary[rows.size()] + ngram.offsets[rows.size()]);
        }
    }
    return rows;
}

TEST(NgramHash, the_released_model_has_the_published_constants) {
    const model::NgramConfig ngram = derived(248320, 20'000'000, 3, 8);
    EXPECT_EQ(ngram.multipliers,
              (std::vector<std::uint64_t>{23703573157769, 20109073645365, 8052911324071}));
    EXPECT_EQ(ngram.vocabulary,
              (std::vector<std::uint64_t>{
                  20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                  20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171}));
    EXPECT_EQ(ngram.offsets.back(), 300001275U);
    const std::uint64_t end = 248044;
    EXPECT_EQ(
        rows_of(ngram, {9707, end, end}),
        (std::vector<std::uint64_t>{16410909, 39682429, 55103279, 60931720, 87006904, 116506179,
                                    131512017, 152932897, 169641436, 182022480, 209277433,
                                    237891023, 256841529, 277007269, 290665954, 300984276}));
    EXPECT_EQ(
        rows_of(ngram, {3, 2, 1}),
        (std::vector<std::uint64_t>{14605717, 24410875, 49313567, 72177428, 86060820, 104022010,
                                    130963819, 146886202, 161523077, 195939126, 219424565,
                                    220811782, 248020141, 275228530, 284297999, 309645223}));
}

TEST(NgramHash, the_golden_checkpoints_store_what_is_derived) {
    for (const char* name : {"tiny", "odd"}) {
        HfCheckpoint checkpoint = HfCheckpoint::load(golden_directory(name) + "/target");
        const ConvertCase stored(checkpoint);
        const gguf::File with = stored.file();
        EXPECT_EQ(std::erase_if(checkpoint.tensors,
                                [](const auto& entry) { return entry.second.dtype == "I64"; }),
                  3U);
        checkpoint.config.erase("seed");
        const ConvertCase bare(checkpoint);
        const gguf::File without = bare.file();
        for (const char* key : {"layer_multipliers", "head_vocab_sizes", "head_offsets"}) {
            const std::string full = std::string("qwen4exp.ple.") + key;
            EXPECT_EQ(with.find(full)->payload(), without.find(full)->payload()) << key;
        }
    }
    EXPECT_NE(derived(900, 600, 4, 2, 1235).multipliers, derived(900, 600, 4, 2).multipliers);
}

TEST(NgramHash, sizes_are_different_primes_from_the_base_on_and_hashes_fit_63_bits) {
    for (const std::uint64_t base : {2U, 3U, 4U, 50U, 1009U}) {
        const model::NgramConfig ngram = derived(900, base, 4, 3, 99);
        ASSERT_EQ(ngram.vocabulary.size(), 9U);
        std::uint64_t last = base - 1;
        std::uint64_t offset = 0;
        for (std::size_t h = 0; h < 9; ++h) {
            std::uint64_t n = last + 1;
            const auto composite = [](std::uint64_t v) {
                for (std::uint64_t d = 2; d < v; ++d) {
                    if (v % d == 0) return true;
                }
                return false;
            };
            while (composite(n)) ++n;
            EXPECT_EQ(ngram.vocabulary[h], n);
            EXPECT_EQ(ngram.offsets[h], offset);
            last = n;
            offset += n;
        }
        for (const std::uint64_t m : ngram.multipliers) {
            EXPECT_EQ(m % 2, 1U);
            EXPECT_LT(m, (std::uint64_t{1} << 63) / 900);
        }
    }
}

TEST(NgramHash, a_table_that_is_shorter_than_its_hash_is_refused) {
    HfCheckpoint checkpoint = HfCheckpoint::random(small_config());
    std::erase_if(checkpoint.tensors,
                  [](const auto& entry) { return entry.second.dtype == "I64"; });
    // From 50 on, the primes of the derived hash need more rows than the shards have.
    EXPECT_TRUE(says(ConvertCase(checkpoint).error(), "rows in 2 tensors, wanted at least"));
    checkpoint.config.erase("ngram_vocab_size_base");
    EXPECT_TRUE(says(ConvertCase(checkpoint).error(), "no ngram_vocab_size_base"));
}

}  // namespace
}  // namespace strata::test
