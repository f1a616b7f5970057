// The public names of conversion, quantization and inspection.
#include "convert/convert.h"

#include <string>
#include <string_view>

#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/draft_head.h"
#include "convert/inspect.h"
#include "convert/quantize.h"
#include "strata/convert.h"

namespace strata {

Status convert_checkpoint(const ConvertRequest& request, const ConvertProgress& progress) {
    convert::ConvertOptions options;
    options.directory = request.directory;
    options.output = request.output;
    options.mtp = !request.no_mtp;
    options.target = request.target;
    STRATA_ASSIGN(options.types, convert::read_types(request));
    if (progress) {
        options.progress = [&progress](std::uint64_t done, std::uint64_t total, std::string_view) {
            return progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
        };
    }
    return convert::convert_checkpoint(options);
}

Status quantize_model(const QuantizeRequest& request, const ConvertProgress& progress) {
    if (request.threads < 0 || request.threads > kThreadsMax) {
        return STRATA_ERROR(request.threads, " threads were asked for, wanted 1 to ", kThreadsMax,
                            ", or 0 for all cores");
    }
    convert::QuantizeOptions options;
    options.input = request.input;
    options.output = request.output;
    options.threads = request.threads == 0 ? available_threads() : request.threads;
    options.importance = request.importance;
    options.mtp = !request.no_mtp;
    options.only_mtp = request.only_mtp;
    options.keep = request.type == kKeepType;
    TypeNames types = request;
    if (options.keep) types.type = TypeNames{}.type;
    STRATA_ASSIGN(options.types, convert::read_types(types));
    if (progress) {
        options.progress = [&progress](std::uint64_t done, std::uint64_t total) {
            return progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
        };
    }
    return convert::quantize(options);
}

namespace {

Result<convert::DraftHeadOptions> head_options(const DraftHeadRequest& request,
                                               const ConvertProgress& progress) {
    convert::DraftHeadOptions options;
    options.draft = request.draft;
    options.target = request.target;
    options.output = request.output;
    options.vocabulary = request.vocabulary;
    STRATA_ASSIGN(options.type, convert::parse_type(request.type));
    if (progress) {
        options.progress = [&progress](std::uint64_t done, std::uint64_t total) {
            return progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
        };
    }
    return options;
}

}  // namespace

Status add_draft_head(const DraftHeadRequest& request, const ConvertProgress& progress) {
    STRATA_ASSIGN(const convert::DraftHeadOptions options, head_options(request, progress));
    return convert::add_draft_head(options);
}

Status add_mtp_head(const DraftHeadRequest& request, const ConvertProgress& progress) {
    STRATA_ASSIGN(const convert::DraftHeadOptions options, head_options(request, progress));
    return convert::add_mtp_head(options);
}

Result<std::string> inspect_file(const InspectRequest& request) {
    STRATA_ASSIGN(const convert::Inspection inspection, convert::inspect(request.path));
    return request.json ? convert::inspection_json(inspection, request.tensors)
                        : convert::inspection_text(inspection, request.tensors);
}

}  // namespace strata
