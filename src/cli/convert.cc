// strata convert: a checkpoint folder to one GGUF file.
#include "strata/convert.h"
#include "cli/command.h"
#include "cli/guard.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace strata::cli {
namespace {

Status run(const ConvertRequest& request) {
    STRATA_TRY(guard_checkpoint(request.output, request.directory));
    Progress progress("convert");
    const Interrupt interrupt;
    return convert_checkpoint(request, [&](std::int64_t done, std::int64_t total) {
        progress.show(done, total);
        return !interrupt.seen();
    });
}

}  // namespace

Run add_convert(Options& options) {
    const auto to = std::make_shared<ConvertRequest>();
    options
        .text("DIR", "DIR", &to->directory,
              "The checkpoint: config.json, safetensors, and the tokenizer where there is one")
        .required();
    options.text("-o,--output", "OUT.gguf", &to->output, "Where to write; whole or not at all")
        .required();
    options.text("--type", "TYPE", &to->type,
                 "Number format of every matrix that no other option names: f32, f16, bf16, q8_0 "
                 "or q4_0 (default: bf16)");
    options.text("--experts-gate", "TYPE", &to->experts_gate,
                 "Of the experts' gate and up matrices");
    options.text("--experts-down", "TYPE", &to->experts_down, "Of the experts' down matrices");
    options.text("--dense", "TYPE", &to->dense,
                 "Of attention, delta nets, shared experts, n-gram block and MTP");
    options.text("--hyper", "TYPE", &to->hyper, "Of the hyper-connections");
    options.text("--embedding", "TYPE", &to->embedding, "Of the token embedding");
    options.text("--head", "TYPE", &to->head, "Of the output head");
    options.text("--table", "TYPE", &to->table, "Of the n-gram table");
    options.text("--target", "DIR|GGUF", &to->target,
                 "Of a DFlash2 draft: its target, whose tokenizer it gets and which it must fit");
    options.flag("--no-mtp", &to->no_mtp, "Leave the MTP layer out");
    return [to] { return run(*to); };
}

}  // namespace strata::cli
