#include "convert/rewrite.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace strata::convert {
namespace {

constexpr std::uint64_t kCopyBytes = std::uint64_t{4} << 20;

}  // namespace

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

Status TensorData::write(std::span<const std::byte> bytes) {
    STRATA_TRY(writer_.write_tensor_data(bytes));
    done_ += bytes.size();
    if (!progress_ || progress_(done_, total_)) return Ok{};
    return STRATA_ERROR("writing was interrupted after ", done_, " of ", total_, " bytes");
}

Status TensorData::copy(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto piece = bytes.first(std::min<std::uint64_t>(kCopyBytes, bytes.size()));
        STRATA_TRY(write(piece));
        bytes = bytes.subspan(piece.size());
    }
    return Ok{};
}

}  // namespace strata::convert
