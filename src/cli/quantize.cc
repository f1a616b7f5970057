// strata quantize: a model in other number formats.
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/type_options.h"
#include "cli/watched.h"
#include "strata/convert.h"

namespace strata::cli {
namespace {

struct Quantize {
    QuantizeRequest request;
    std::int64_t threads = 0;
};

Status run(Quantize& options) {
    options.request.threads = static_cast<int>(options.threads);
    Watched watched("quantize");
    return quantize_model(options.request, watched.callback());
}

}  // namespace

Run add_quantize(Options& options) {
    const auto to = std::make_shared<Quantize>();
    options
        .text("IN", "IN", &to->request.input,
              "The model: a GGUF file, a part of a split set, or a folder that holds one")
        .required();
    options
        .text("OUT", "OUT", &to->request.output,
              "Where to write; whole or not at all, in place of a file of this name")
        .required();
    add_type_options(options, &to->request, true);
    options.text(
        "--importance", "FILE", &to->request.importance,
        "What `strata eval importance` wrote of the model, or llama.cpp's imatrix: columns "
        "that matter more are rounded more finely, where the type can");
    options.flag("--no-mtp", &to->request.no_mtp, "Leave the MTP layer out");
    options.flag("--only-mtp", &to->request.only_mtp,
                 "Leave all but the MTP layer out: a file for --mtp, which has no embedding, head "
                 "or table to give a type");
    options.integer("-t,--threads", {1, kThreadsMax}, &to->threads,
                    "Threads to encode with; the file does not depend on it (default: all cores "
                    "that the process may use)");
    options.check([to]() -> Status {
        if (to->request.no_mtp && to->request.only_mtp) {
            return STRATA_ERROR(
                "both --no-mtp and --only-mtp are given: at most one of them is wanted");
        }
        return Ok{};
    });
    return [to] { return run(*to); };
}

}  // namespace strata::cli
