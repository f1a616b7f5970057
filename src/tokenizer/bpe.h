// Byte-pair merging of one piece: of all adjacent pairs that merge, the one of the lowest rank, and
// of those the leftmost, until none is left.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/vocabulary.h"

namespace strata {

class Bpe {
  public:
    // `vocabulary` as check_vocabulary() accepts it. Errors: a byte that no normal token spells.
    static Result<Bpe> create(const Vocabulary& vocabulary);

    // Appends the ids of a piece (any bytes). O(n log n), no recursion. Pieces longer than
    // kPieceBytesMax are cut there.
    void encode(std::string_view piece, std::vector<TokenId>& ids) const;

    static constexpr std::size_t kPieceBytesMax = std::size_t{1} << 30;

  private:
    struct Merge {
        std::uint64_t pair = kNoPair;  // left << 32 | right
        std::uint32_t rank = kNoRank;
        TokenId result = -1;
    };
    class LongPiece;

    static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
    static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

    void insert(const Merge& merge);
    // rank is kNoRank where the pair does not merge.
    const Merge& find(TokenId left, TokenId right) const;
    void encode_short(std::string_view piece, std::vector<TokenId>& ids) const;

    TokenId byte_ids_[256] = {};
    // Open addressing; the size is a power of two of which at most half is used.
    std::vector<Merge> table_;
    Merge none_;
};

}  // namespace strata
