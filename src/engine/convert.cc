// The public names of conversion and inspection.
#include "convert/convert.h"

#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "convert/inspect.h"
#include "strata/convert.h"

namespace strata {
namespace {

Status read_type(const std::string& text, std::optional<quant::Type>* type) {
    if (text.empty()) return Ok{};
    STRATA_ASSIGN(*type, convert::parse_type(text));
    return Ok{};
}

}  // namespace

Status convert_checkpoint(const ConvertRequest& request, const ConvertProgress& progress) {
    convert::ConvertOptions options;
    options.directory = request.directory;
    options.output = request.output;
    options.mtp = !request.no_mtp;
    options.target = request.target;
    STRATA_ASSIGN(options.types.type, convert::parse_type(request.type));
    STRATA_TRY(read_type(request.experts_gate, &options.types.experts_gate));
    STRATA_TRY(read_type(request.experts_down, &options.types.experts_down));
    STRATA_TRY(read_type(request.dense, &options.types.dense));
    STRATA_TRY(read_type(request.hyper, &options.types.hyper));
    STRATA_TRY(read_type(request.embedding, &options.types.embedding));
    STRATA_TRY(read_type(request.head, &options.types.head));
    STRATA_TRY(read_type(request.table, &options.types.table));
    if (progress) {
        options.progress = [&progress](std::uint64_t done, std::uint64_t total, std::string_view) {
            return progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
        };
    }
    return convert::convert_checkpoint(options);
}

Result<std::string> inspect_file(const InspectRequest& request) {
    STRATA_ASSIGN(const convert::Inspection inspection, convert::inspect(request.path));
    return request.json ? convert::inspection_json(inspection, request.tensors)
                        : convert::inspection_text(inspection, request.tensors);
}

}  // namespace strata
