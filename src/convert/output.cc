#include "convert/output.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/text.h"

namespace strata::convert {
namespace {

// Values held at a time, unless one row has more.
constexpr std::uint64_t kChunkValues = std::uint64_t{1} << 18;

std::string model_name(const ConvertOptions& options) {
    if (!options.name.empty()) return options.name;
    std::error_code ignored;
    const auto path = std::filesystem::weakly_canonical(options.directory, ignored);
    const std::string name = path.filename().string();
    return name.empty() ? std::string("model") : name;
}

class Progress {
  public:
    Progress(const ConvertOptions& options, const std::vector<Output>& outputs)
        : options_(options) {
        for (const Output& output : outputs) total_ += output.recipe.rows() * output.row_bytes;
    }
    // Error: the caller wants no more.
    Status add(std::uint64_t bytes, std::string_view tensor) {
        done_ += bytes;
        if (!options_.progress || options_.progress(done_, total_, tensor)) return Ok{};
        return STRATA_ERROR("the conversion was interrupted after ", done_, " of ", total_,
                            " bytes");
    }

  private:
    const ConvertOptions& options_;
    std::uint64_t done_ = 0;
    std::uint64_t total_ = 0;
};

Status write_tensor(const std::string& directory, const Output& output, gguf::Writer& writer,
                    Progress& progress) {
    const std::uint64_t width = output.recipe.width();
    const std::uint64_t rows = output.recipe.rows();
    const std::uint64_t step = std::max<std::uint64_t>(1, kChunkValues / width);
    const auto encode = quant::info(output.type).encode;
    std::vector<float> values;
    std::vector<std::byte> bytes;
    for (std::uint64_t row = 0; row < rows; row += step) {
        const std::uint64_t count = std::min(step, rows - row);
        values.resize(count * width);
        bytes.resize(count * output.row_bytes);
        if (Status read = read_rows(output.recipe, row, values); !read.ok()) {
            return STRATA_ERROR(quote(directory), ": ", read.error().message);
        }
        STRATA_TRY(check_range(output.type, directory, output.recipe.spec.name, values));
        encode(values.data(), bytes.data(), static_cast<std::int64_t>(values.size()));
        STRATA_TRY(writer.write_tensor_data(bytes));
        STRATA_TRY(progress.add(bytes.size(), output.recipe.spec.name));
    }
    return Ok{};
}

}  // namespace

Result<Output> declare(Recipe recipe, quant::Type type, gguf::Writer& writer) {
    STRATA_ASSIGN(const std::uint64_t bytes, quant::row_bytes(type, recipe.width()));
    STRATA_TRY(writer.add_tensor(recipe.spec.name, type, recipe.spec.shape));
    return Output{std::move(recipe), type, bytes};
}

void set_general_keys(const ConvertOptions& options, gguf::Writer& writer) {
    writer.set("general.name", gguf::Value::string(model_name(options)));
    writer.set("general.file_type", gguf::Value::of(file_type(options.types.type)));
    writer.set("general.quantization_version", gguf::Value::of(kQuantizationVersion));
}

Status write_outputs(const ConvertOptions& options, const std::vector<Output>& outputs,
                     gguf::Writer& writer) {
    STRATA_TRY(writer.begin(options.output));
    Progress progress(options, outputs);
    for (const Output& output : outputs) {
        STRATA_TRY(write_tensor(options.directory, output, writer, progress));
    }
    return writer.commit();
}

}  // namespace strata::convert
