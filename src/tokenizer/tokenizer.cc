#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_split.h"
#include "tokenizer/unicode.h"

namespace strata {

struct Tokenizer::Tables {
    Tables(Vocabulary source, Bpe merger) : vocabulary(std::move(source)), bpe(std::move(merger)) {}

    // `text` as it goes to the merger: normalized and without added tokens.
    void encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
        PreSplitter pieces(text, vocabulary.pre_split);
        for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
            bpe.encode(piece, ids);
        }
    }

    bool contains(TokenId id) const {
        return id >= 0 && static_cast<std::size_t>(id) < vocabulary.tokens.size();
    }
    TokenKind kind(TokenId id) const {
        return contains(id) ? vocabulary.kinds[static_cast<std::size_t>(id)] : TokenKind::unused;
    }

    Vocabulary vocabulary;
    Bpe bpe;
    // Index = id.
    std::vector<std::string> bytes;
    AddedTokens all_added;
    // The two sets that are looked for before and after normalization.
    AddedTokens raw_added;
    AddedTokens normalized_added;
};

namespace {

// The bytes that a token stands for. A normal token with a character outside the alphabet stands
// for its own spelling, as in the reference's decoder.
std::string bytes_of(const std::string& token, TokenKind kind) {
    if (kind == TokenKind::unused) return {};
    if (kind == TokenKind::normal) {
        if (auto bytes = spelled_bytes(token)) return *std::move(bytes);
    }
    return token;
}

bool is_added_kind(TokenKind kind) {
    return kind == TokenKind::control || kind == TokenKind::unknown ||
           kind == TokenKind::user_defined;
}

// Calls text_between(part) and token(id) in the order of the text.
template <typename TextBetween, typename Token>
void split_at(const AddedTokens& added, std::string_view text, const TextBetween& text_between,
              const Token& token) {
    std::size_t position = 0;
    while (const auto match = added.find(text, position)) {
        if (match->position > position) {
            text_between(text.substr(position, match->position - position));
        }
        token(match->id);
        position = match->position + match->length;
    }
    if (position < text.size()) text_between(text.substr(position));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
    STRATA_TRY(check_vocabulary(vocabulary));
    STRATA_ASSIGN(Bpe bpe, Bpe::create(vocabulary));
    auto tables = std::make_unique<Tables>(std::move(vocabulary), std::move(bpe));
    const Vocabulary& source = tables->vocabulary;
    tables->bytes.reserve(source.tokens.size());
    for (std::size_t i = 0; i < source.tokens.size(); ++i) {
        const std::string& token = source.tokens[i];
        tables->bytes.push_back(bytes_of(token, source.kinds[i]));
        if (!is_added_kind(source.kinds[i])) continue;
        const auto id = static_cast<TokenId>(i);
        tables->all_added.add(token, id);
        if (std::binary_search(source.normalized_tokens.begin(), source.normalized_tokens.end(),
                               id)) {
            tables->normalized_added.add(source.nfc ? to_nfc(token) : token, id);
        } else {
            tables->raw_added.add(token, id);
        }
    }
    return Tokenizer(std::move(tables));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
    std::vector<TokenId> ids;
    if (tables_->vocabulary.nfc) {
        tables_->encode_plain(to_nfc(text), ids);
    } else {
        tables_->encode_plain(text, ids);
    }
    return ids;
}

std::vector<TokenId> Tokenizer::encode_with_special(std::string_view text) const {
    std::vector<TokenId> ids;
    const auto add_id = [&](TokenId id) { ids.push_back(id); };
    const auto add_plain = [&](std::string_view part) { tables_->encode_plain(part, ids); };
    const auto add_raw = [&](std::string_view part) {
        if (tables_->vocabulary.nfc) {
            split_at(tables_->normalized_added, to_nfc(part), add_plain, add_id);
        } else {
            split_at(tables_->normalized_added, part, add_plain, add_id);
        }
    };
    split_at(tables_->raw_added, text, add_raw, add_id);
    return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, ControlTokens control) const {
    std::string text;
    for (const TokenId id : ids) {
        if (control == ControlTokens::skip && is_control(id)) continue;
        text += token_bytes(id);
    }
    return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
    if (!tables_->contains(id)) return {};
    return tables_->bytes[static_cast<std::size_t>(id)];
}

std::int64_t Tokenizer::size() const {
    return static_cast<std::int64_t>(tables_->vocabulary.tokens.size());
}

std::optional<TokenId> Tokenizer::find(std::string_view spelling) const {
    return tables_->all_added.exact(spelling);
}

bool Tokenizer::is_control(TokenId id) const {
    const TokenKind kind = tables_->kind(id);
    return kind == TokenKind::control || kind == TokenKind::unknown;
}

bool Tokenizer::is_added(TokenId id) const { return is_added_kind(tables_->kind(id)); }

const Vocabulary& Tokenizer::vocabulary() const { return tables_->vocabulary; }

}  // namespace strata
