#include "convert/rewrite.h"

#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace strata::convert {

Status check_not_input(const gguf::File& input, const std::string& output) {
    for (const std::string& path : input.paths()) {
        std::error_code unequal;
        if (path == output || std::filesystem::equivalent(path, output, unequal)) {
            return STRATA_ERROR("output ", quote(output), " is a file of the input ",
                                quote(input.path()), ": another name is wanted");
        }
    }
    return Ok{};
}

void copy_metadata(const gguf::File& file, gguf::Writer& writer) {
    for (const auto& [key, value] : file.metadata()) {
        const bool of_the_container = key == "general.alignment" || key.starts_with("split.");
        if (!of_the_container) writer.set(key, value);
    }
}

}  // namespace strata::convert
