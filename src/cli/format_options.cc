#include "cli/format_options.h"

#include <string>
#include <vector>

#include "base/text.h"

namespace strata::cli {
namespace {

// In the order of ResponseFormat.
const std::vector<std::string> kFormats = {"text", "json_object"};

}  // namespace

void add_format_options(Options& options, FormatOptions* to) {
    options.choice("--response-format", kFormats, &to->format,
                   "What is written; json_object: one JSON object, whatever is drawn and guessed, "
                   "after the thinking where there is one (default: text)");
}

std::string cut_note(const Completion& answer, std::int64_t max_tokens) {
    if (answer.whole || answer.finish != Finish::length) return "";
    const auto count = static_cast<std::int64_t>(answer.tokens.size());
    return concat("the JSON object is not whole: ", count == max_tokens ? "-n" : "a full context",
                  " ended it after ", count, count == 1 ? " token\n" : " tokens\n");
}

ResponseFormat format_of(const FormatOptions& options) {
    return static_cast<ResponseFormat>(options.format);
}

}  // namespace strata::cli
