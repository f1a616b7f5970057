// strata convert: a checkpoint folder to one GGUF file.
#include "strata/convert.h"
#include "cli/command.h"
#include "cli/guard.h"
#include "cli/output.h"
#include "cli/type_options.h"
#include "cli/watched.h"

namespace strata::cli {
namespace {

Status run(const ConvertRequest& request) {
    STRATA_TRY(guard_checkpoint(request.output, request.directory));
    Watched watched("convert");
    return convert_checkpoint(request, watched.callback());
}

}  // namespace

Run add_convert(Options& options) {
    const auto to = std::make_shared<ConvertRequest>();
    options
        .text("DIR", "DIR", &to->directory,
              "The checkpoint: config.json, safetensors, and the tokenizer where there is one")
        .required();
    options
        .text("-o,--output", "OUT.gguf", &to->output,
              "Where to write; whole or not at all, in place of a file of this name")
        .required();
    add_type_options(options, to.get(), false);
    options.text(
        "--target", "DIR|GGUF", &to->target,
        "Of a DFlash2 draft or an MTP layer alone: its target, whose tokenizer it gets and which "
        "it must fit");
    options.flag("--no-mtp", &to->no_mtp, "Leave the MTP layer out");
    return [to] { return run(*to); };
}

}  // namespace strata::cli
