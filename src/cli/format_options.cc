#include "cli/format_options.h"

#include <string>
#include <vector>

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

ResponseFormat format_of(const FormatOptions& options) {
    return static_cast<ResponseFormat>(options.format);
}

}  // namespace strata::cli
