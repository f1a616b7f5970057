#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tokenizer/unicode_ages.h"

namespace strata {

namespace {

// Below it every character is a starter that composes with nothing in front of it.
constexpr char32_t kFirstCombining = 0x300;
// Canonical decomposition of one character, at most (U+1F82 and its like).
constexpr std::size_t kDecompositionMax = 8;
// One before the first trailing consonant of Hangul. It composes with nothing, but the library
// takes it for a trailing consonant of index 0 and drops it after a syllable.
constexpr char32_t kBeforeHangulTrailing = 0x11A7;

std::uint8_t byte_at(std::string_view text, std::size_t position) {
    return static_cast<std::uint8_t>(text[position]);
}

void append_utf8(char32_t code, std::string& out) {
    utf8proc_uint8_t bytes[4];
    const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

// Characters of one valid stretch on their way to form C, with what the reordering needs.
class Composer {
  public:
    explicit Composer(std::string& out) : out_(out) {}

    void add(char32_t code) {
        if (is_late_mark(code) || code == kBeforeHangulTrailing) {
            flush();
            append_utf8(code, out_);
            return;
        }
        utf8proc_int32_t parts[kDecompositionMax];
        const auto count = utf8proc_decompose_char(
            static_cast<utf8proc_int32_t>(code), parts, kDecompositionMax,
            static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), nullptr);
        STRATA_CHECK(count >= 1 && count <= static_cast<utf8proc_ssize_t>(kDecompositionMax));
        codes_.insert(codes_.end(), parts, parts + count);
    }

    void flush() {
        if (codes_.empty()) return;
        reorder();
        const auto count = utf8proc_normalize_utf32(
            codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size()),
            static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        STRATA_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(codes_.size()));
        for (utf8proc_ssize_t i = 0; i < count; ++i) {
            append_utf8(static_cast<char32_t>(codes_[static_cast<std::size_t>(i)]), out_);
        }
        codes_.clear();
    }

  private:
    static int combining_class(utf8proc_int32_t code) {
        return utf8proc_get_property(code)->combining_class;
    }

    // Each run of non-starters by combining class. The library's own ordering is an insertion
    // sort, quadratic in the length of a run.
    void reorder() {
        auto at = codes_.begin();
        while (at != codes_.end()) {
            if (combining_class(*at) == 0) {
                ++at;
                continue;
            }
            const auto end = std::find_if(
                at, codes_.end(), [](utf8proc_int32_t code) { return combining_class(code) == 0; });
            const auto less = [](utf8proc_int32_t a, utf8proc_int32_t b) {
                return combining_class(a) < combining_class(b);
            };
            if (end - at > 1) std::stable_sort(at, end, less);
            at = end;
        }
    }

    std::string& out_;
    std::vector<utf8proc_int32_t> codes_;
};

// Bytes from `position` on that form C certainly leaves alone: characters below kFirstCombining
// that are not followed by one that is not.
std::size_t plain_end(std::string_view text, std::size_t position) {
    std::size_t last = position;
    while (position < text.size() && byte_at(text, position) < 0xCC) {
        const Utf8Step step = utf8_step(text, position);
        last = position;
        position += step.state == Utf8::whole ? step.length : 1;
    }
    return position == text.size() ? position : last;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t position) {
    const std::uint8_t lead = byte_at(text, position);
    if (lead < 0x80) return {Utf8::whole, 1, lead};
    if (lead < 0xC2 || lead > 0xF4) return {Utf8::broken, 1, 0};
    const std::size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // Bounds of the second byte; the later ones are always 80..BF.
    std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    char32_t code = lead & (0x7Fu >> wanted);
    for (std::size_t i = 1; i < wanted; ++i) {
        if (position + i >= text.size()) return {Utf8::partial, i, 0};
        const std::uint8_t next = byte_at(text, position + i);
        if (next < low || next > high) return {Utf8::broken, i, 0};
        code = code << 6 | (next & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    return {Utf8::whole, wanted, code};
}

CharClass char_class(char32_t code) {
    if (code == U'\r' || code == U'\n') return CharClass::newline;
    if ((code >= 0x9 && code <= 0xC) || code == 0x85) return CharClass::space;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
            return CharClass::letter;
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
            return CharClass::mark;
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_NO:
            return CharClass::number;
        case UTF8PROC_CATEGORY_ZS:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
            return CharClass::space;
        case UTF8PROC_CATEGORY_CN:
            return late_class(code);
        default:
            return CharClass::other;
    }
}

std::string to_nfc(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    Composer composer(out);
    std::size_t position = 0;
    while (position < text.size()) {
        const Utf8Step step = utf8_step(text, position);
        if (step.state != Utf8::whole) {
            composer.flush();
            out += text[position++];
            continue;
        }
        if (step.code < kFirstCombining) {
            composer.flush();
            const std::size_t end = plain_end(text, position);
            out.append(text, position, end - position);
            position = end;
            if (position == text.size()) break;
        }
        const Utf8Step next = utf8_step(text, position);
        if (next.state != Utf8::whole) continue;
        composer.add(next.code);
        position += next.length;
    }
    composer.flush();
    return out;
}

}  // namespace strata
