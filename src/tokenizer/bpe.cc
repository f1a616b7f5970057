#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>

#include "base/text.h"
#include "tokenizer/byte_alphabet.h"

namespace strata {

namespace {

// Up to this length looking through all pairs is faster than the ordered containers.
constexpr std::size_t kShortPieceMax = 40;

std::uint64_t pair_key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
}

// The finalizer of MurmurHash3.
std::uint64_t mix(std::uint64_t key) {
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    return key ^ key >> 33;
}

// Positions at which one merge may apply, taken out in ascending order. Most arrive ascending, so
// they stay in a list; only those that come late go through a heap.
class Positions {
  public:
    void push(std::uint32_t position) {
        if (list_.empty() || position >= list_.back()) {
            list_.push_back(position);
        } else {
            late_.push(position);
        }
    }
    bool empty() const { return next_ == list_.size() && late_.empty(); }
    std::uint32_t pop() {
        if (!late_.empty() && (next_ == list_.size() || late_.top() < list_[next_])) {
            const std::uint32_t position = late_.top();
            late_.pop();
            return position;
        }
        return list_[next_++];
    }

  private:
    std::vector<std::uint32_t> list_;
    std::size_t next_ = 0;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> late_;
};

}  // namespace

// A piece as a linked list of symbols, with the candidates sorted by rank and position.
class Bpe::LongPiece {
  public:
    LongPiece(const Bpe& bpe, std::string_view piece) : bpe_(bpe), size_(piece.size()) {
        ids_.reserve(size_);
        next_.reserve(size_);
        previous_.reserve(size_);
        for (std::size_t i = 0; i < size_; ++i) {
            ids_.push_back(bpe.byte_ids_[static_cast<std::uint8_t>(piece[i])]);
            next_.push_back(static_cast<std::uint32_t>(i + 1));
            previous_.push_back(static_cast<std::uint32_t>(i) - 1);
        }
        for (std::size_t i = 0; i + 1 < size_; ++i) offer(static_cast<std::uint32_t>(i));
    }

    void merge_all() {
        while (!candidates_.empty()) {
            const auto lowest = candidates_.begin();
            if (lowest->second.empty()) {
                candidates_.erase(lowest);
                continue;
            }
            apply(lowest->first, lowest->second.pop());
        }
    }

    void append_to(std::vector<TokenId>& ids) const {
        for (std::size_t i = 0; i < size_; i = next_[i]) ids.push_back(ids_[i]);
    }

  private:
    // -1 in ids_ marks a symbol that was merged into the one before it.
    void apply(std::uint32_t rank, std::uint32_t position) {
        const std::uint32_t right = next_[position];
        if (ids_[position] < 0 || right >= size_) return;
        const Merge& merge = bpe_.find(ids_[position], ids_[right]);
        if (merge.rank != rank) return;
        ids_[position] = merge.result;
        ids_[right] = -1;
        next_[position] = next_[right];
        if (next_[position] < size_) {
            previous_[next_[position]] = position;
            offer(position);
        }
        if (position > 0) offer(previous_[position]);
    }

    void offer(std::uint32_t position) {
        const Merge& merge = bpe_.find(ids_[position], ids_[next_[position]]);
        if (merge.rank != kNoRank) candidates_[merge.rank].push(position);
    }

    const Bpe& bpe_;
    std::size_t size_;
    std::vector<TokenId> ids_;
    std::vector<std::uint32_t> next_;
    std::vector<std::uint32_t> previous_;
    std::map<std::uint32_t, Positions> candidates_;
};

Result<Bpe> Bpe::create(const Vocabulary& vocabulary) {
    std::unordered_map<std::string_view, TokenId> ids;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (vocabulary.kinds[id] == TokenKind::normal) {
            ids.emplace(vocabulary.tokens[id], static_cast<TokenId>(id));
        }
    }
    Bpe bpe;
    for (int byte = 0; byte < 256; ++byte) {
        const std::string spelling = byte_spelling(static_cast<std::uint8_t>(byte));
        const auto found = ids.find(spelling);
        if (found == ids.end()) {
            return STRATA_ERROR("The vocabulary has no token for the byte ", byte, ", spelled ",
                                quote(spelling),
                                "; a byte-level vocabulary has one for each byte.");
        }
        bpe.byte_ids_[byte] = found->second;
    }
    std::size_t slots = 2;
    while (slots < 2 * vocabulary.merges.size()) slots *= 2;
    bpe.table_.resize(slots);
    for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
        const auto& [left, right] = vocabulary.merges[rank];
        const auto pair = pair_key(ids.at(left), ids.at(right));
        bpe.insert({pair, static_cast<std::uint32_t>(rank), ids.at(left + right)});
    }
    return bpe;
}

void Bpe::insert(const Merge& merge) {
    std::size_t slot = mix(merge.pair) & (table_.size() - 1);
    while (table_[slot].pair != kNoPair) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = merge;
}

const Bpe::Merge& Bpe::find(TokenId left, TokenId right) const {
    const std::uint64_t key = pair_key(left, right);
    std::size_t slot = mix(key) & (table_.size() - 1);
    while (table_[slot].pair != key) {
        if (table_[slot].pair == kNoPair) return none_;
        slot = (slot + 1) & (table_.size() - 1);
    }
    return table_[slot];
}

void Bpe::encode_short(std::string_view piece, std::vector<TokenId>& ids) const {
    TokenId symbols[kShortPieceMax];
    // merges[i] joins symbols i and i + 1.
    const Merge* merges[kShortPieceMax];
    std::size_t count = piece.size();
    for (std::size_t i = 0; i < count; ++i) {
        symbols[i] = byte_ids_[static_cast<std::uint8_t>(piece[i])];
        if (i > 0) merges[i - 1] = &find(symbols[i - 1], symbols[i]);
    }
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i) {
            if (merges[i]->rank < merges[best]->rank) best = i;
        }
        if (merges[best]->rank == kNoRank) break;
        symbols[best] = merges[best]->result;
        std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
        std::copy(merges + best + 1, merges + count - 1, merges + best);
        --count;
        if (best > 0) merges[best - 1] = &find(symbols[best - 1], symbols[best]);
        if (best + 1 < count) merges[best] = &find(symbols[best], symbols[best + 1]);
    }
    ids.insert(ids.end(), symbols, symbols + count);
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& ids) const {
    while (!piece.empty()) {
        const std::string_view part = piece.substr(0, kPieceBytesMax);
        piece.remove_prefix(part.size());
        if (part.size() <= kShortPieceMax) {
            encode_short(part, ids);
            continue;
        }
        LongPiece symbols(*this, part);
        symbols.merge_all();
        symbols.append_to(ids);
    }
}

}  // namespace strata
