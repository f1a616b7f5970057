#include "engine/feature_dump.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "quant/half.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

constexpr std::uint64_t kIndexBytes = 2 * sizeof(std::int32_t);
constexpr float kHalfMax = 65504;
// Rows that are added together at most.
constexpr auto kStepRows = static_cast<std::uint64_t>(kChunkRowsMax);

// What is too large for a half becomes the largest one: training is not stopped by an infinity.
std::vector<std::uint16_t> halves(const float* values, std::int64_t count) {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(count));
    std::transform(values, values + count, out.begin(), [](float value) {
        return quant::f32_to_f16(std::isnan(value) ? value
                                                   : std::clamp(value, -kHalfMax, kHalfMax));
    });
    return out;
}

// What failed first, and what of taking it back failed besides.
Status also(Status first, const Status& undone) {
    if (undone.ok()) return first;
    return STRATA_ERROR(first.error().message, "; and ", undone.error().message);
}

std::string kind_text(const DumpOptions& dump, const model::Config& config,
                      const std::string& model_name) {
    std::string layers;
    for (const std::int64_t layer : dump.layers) {
        layers += concat(layers.empty() ? "" : ",", layer);
    }
    std::string name;
    for (const char c : model_name) {
        if (c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20) name += c;
    }
    return concat("{\"model\":\"", name, "\",\"vocabulary\":", config.vocabulary,
                  ",\"hidden\":", config.hidden, ",\"streams\":", config.streams, ",\"layers\":[",
                  layers, "],\"residual\":", dump.residual ? "true" : "false", "}");
}

}  // namespace

// Of the rows that there are.
Status FeatureDump::check_kind() const {
    const std::string& path = kind_file_.path();
    if (kind_file_.size() == 0) {
        if (index_.size() == 0 && features_.size() == 0) return Ok{};
        return STRATA_ERROR(quote(features_.path()), " holds ", features_.size(), " bytes and ",
                            quote(path), ", which says of what, none: another prefix is wanted");
    }
    STRATA_ASSIGN(const MappedFile file, MappedFile::open(path));
    const auto bytes = file.bytes();
    std::string_view found(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (found.ends_with('\n')) found.remove_suffix(1);
    if (found == kind_) return Ok{};
    return STRATA_ERROR(quote(path), " says that ", quote(features_.path()), " holds rows of ",
                        quote(found), ", and rows of ", quote(kind_),
                        " are to be added: another prefix is wanted");
}

// Rows whose writing was cut short by the end of the process are dropped: files are written one
// after the other, a step's rows at a time. Whatever else is missing is no such end.
Status FeatureDump::cut_to_whole_rows(std::uint64_t feature_bytes, std::uint64_t residual_bytes) {
    struct Part {
        AppendFile* file;
        std::uint64_t row_bytes;
        std::uint64_t rows() const { return file->size() / row_bytes; }
    };
    std::vector<Part> parts = {{&index_, kIndexBytes}, {&features_, feature_bytes}};
    if (residual_) parts.push_back({&*residual_, residual_bytes});
    for (std::size_t i = 1; i < parts.size(); ++i) {
        const Part& before = parts[i - 1];
        const Part& after = parts[i];
        const bool both = (before.file->size() == 0) == (after.file->size() == 0);
        if (both && after.rows() <= before.rows() && before.rows() - after.rows() <= kStepRows) {
            continue;
        }
        return STRATA_ERROR(quote(before.file->path()), " holds ", before.rows(), " rows and ",
                            quote(after.file->path()), ' ', after.rows(),
                            ", wanted as many: another prefix, or these files together");
    }
    const std::uint64_t rows = parts.back().rows();
    for (const Part& part : parts) STRATA_TRY(part.file->truncate(rows * part.row_bytes));
    return Ok{};
}

Result<FeatureDump> FeatureDump::open(const DumpOptions& dump, const model::Config& config,
                                      const std::string& model_name) {
    STRATA_CHECK(!dump.layers.empty());
    STRATA_ASSIGN(AppendFile index, AppendFile::open(dump.prefix + ".idx"));
    STRATA_ASSIGN(AppendFile features, AppendFile::open(dump.prefix + ".f16"));
    STRATA_ASSIGN(AppendFile kind_file, AppendFile::open(dump.prefix + ".json"));
    FeatureDump out(std::move(index), std::move(features), std::move(kind_file));
    out.layers_ = dump.layers;
    out.kind_ = kind_text(dump, config, model_name);
    if (dump.residual) {
        STRATA_ASSIGN(out.residual_, AppendFile::open(dump.prefix + ".res"));
    }
    STRATA_TRY(out.check_kind());
    const auto hidden_bytes = static_cast<std::uint64_t>(config.hidden) * sizeof(std::uint16_t);
    STRATA_TRY(out.cut_to_whole_rows(hidden_bytes * dump.layers.size(),
                                     hidden_bytes * static_cast<std::uint64_t>(config.streams)));
    return out;
}

void FeatureDump::want(model::StepRequest& request) const {
    request.feature_layers = layers_;
    request.features_to = {};
    request.residual = residual();
}

Status FeatureDump::append(std::int64_t first, std::span<const std::int32_t> tokens,
                           const model::StepResult& result) {
    if (index_.size() > 0) return append_rows(first, tokens, result);
    STRATA_TRY(kind_file_.truncate(0));
    const std::string line = kind_ + '\n';
    STRATA_TRY(kind_file_.append(std::as_bytes(std::span(line))));
    Status status = append_rows(first, tokens, result);
    return status.ok() ? status : also(std::move(status), kind_file_.truncate(0));
}

Status FeatureDump::append_rows(std::int64_t first, std::span<const std::int32_t> tokens,
                                const model::StepResult& result) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    STRATA_CHECK(rows <= result.features.rows);
    std::vector<std::array<std::int32_t, 2>> index;
    for (const std::int32_t token : tokens) {
        index.push_back({static_cast<std::int32_t>(first++), token});
    }
    const auto features = halves(result.features.data, rows * result.features.cols);
    const std::uint64_t index_before = index_.size();
    const std::uint64_t features_before = features_.size();
    STRATA_TRY(index_.append(std::as_bytes(std::span(index))));
    if (Status status = features_.append(std::as_bytes(std::span(features))); !status.ok()) {
        return also(std::move(status), index_.truncate(index_before));
    }
    if (!residual_) return Ok{};
    const auto residual = halves(result.residual.data, rows * result.residual.cols);
    if (Status status = residual_->append(std::as_bytes(std::span(residual))); !status.ok()) {
        status = also(std::move(status), index_.truncate(index_before));
        return also(std::move(status), features_.truncate(features_before));
    }
    return Ok{};
}

}  // namespace strata
