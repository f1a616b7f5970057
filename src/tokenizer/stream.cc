#include "tokenizer/stream.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tokenizer/unicode.h"

namespace strata {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_utf8(std::string_view text) {
    for (std::size_t position = 0; position < text.size();) {
        const Utf8Step step = utf8_step(text, position);
        if (step.state != Utf8::whole) return false;
        position += step.length;
    }
    return true;
}

std::vector<std::size_t> borders(const std::string& text) {
    std::vector<std::size_t> fail(text.size(), 0);
    std::size_t length = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
        while (length > 0 && text[i] != text[length]) length = fail[length - 1];
        if (text[i] == text[length]) ++length;
        fail[i] = length;
    }
    return fail;
}

}  // namespace

std::string TextStream::push(std::string_view bytes) {
    held_ += bytes;
    std::string text;
    std::size_t position = 0;
    while (position < held_.size()) {
        const Utf8Step step = utf8_step(held_, position);
        if (step.state == Utf8::partial) break;
        if (step.state == Utf8::whole) {
            text.append(held_, position, step.length);
        } else {
            text += kReplacement;
        }
        position += step.length;
    }
    held_.erase(0, position);
    return text;
}

std::string TextStream::finish() {
    if (held_.empty()) return {};
    held_.clear();
    return std::string(kReplacement);
}

std::string to_utf8(std::string_view bytes) {
    TextStream stream;
    std::string text = stream.push(bytes);
    return text + stream.finish();
}

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
    if (stops.size() > kStopStringsMax) {
        return STRATA_ERROR("there are ", stops.size(), " stop strings, wanted at most ",
                            kStopStringsMax);
    }
    StopMatcher matcher;
    for (std::size_t i = 0; i < stops.size(); ++i) {
        const std::size_t bytes = stops[i].size();
        if (bytes == 0 || bytes > kStopStringBytesMax) {
            return STRATA_ERROR("stop string ", i, " has ", bytes, " bytes, wanted 1 to ",
                                kStopStringBytesMax);
        }
        if (!is_utf8(stops[i]))
            return STRATA_ERROR("stop string ", i, " is ", quote(stops[i]), ", wanted UTF-8");
        auto fail = borders(stops[i]);
        matcher.stops_.push_back({std::move(stops[i]), std::move(fail), 0});
    }
    return matcher;
}

std::string StopMatcher::push(std::string_view text) {
    if (matched_) return {};
    const std::size_t before = held_.size();
    held_ += text;
    std::size_t longest = 0;
    for (std::size_t i = before; i < held_.size(); ++i) {
        longest = 0;
        for (std::size_t s = 0; s < stops_.size(); ++s) {
            if (!advance(stops_[s], held_[i])) {
                longest = std::max(longest, stops_[s].state);
                continue;
            }
            if (!matched_ || stops_[s].text.size() > stops_[*matched_].text.size()) matched_ = s;
        }
        if (matched_) {
            std::string out = held_.substr(0, i + 1 - stops_[*matched_].text.size());
            held_.clear();
            return out;
        }
    }
    if (text.empty()) return {};
    std::string out = held_.substr(0, held_.size() - longest);
    held_.erase(0, out.size());
    return out;
}

std::string StopMatcher::finish() {
    for (Stop& stop : stops_) stop.state = 0;
    return std::exchange(held_, {});
}

bool StopMatcher::advance(Stop& stop, char byte) {
    while (stop.state > 0 && stop.text[stop.state] != byte) stop.state = stop.fail[stop.state - 1];
    if (stop.text[stop.state] == byte) ++stop.state;
    return stop.state == stop.text.size();
}

}  // namespace strata
