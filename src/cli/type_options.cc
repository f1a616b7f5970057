#include "cli/type_options.h"

#include "base/text.h"

namespace strata::cli {

void add_type_options(Options& options, TypeNames* to, bool quantize) {
    auto type = options.text(
        "--type", "TYPE", &to->type,
        concat("Number format of every matrix that no other option names: ", writable_types(),
               quantize ? concat("; ", kKeepType, ": as it is")
                        : concat(" (default: ", to->type, ")")));
    if (quantize) type.required();
    options.text("--experts-gate", "TYPE", &to->experts_gate,
                 "Of the experts' gate and up matrices");
    options.text("--experts-down", "TYPE", &to->experts_down, "Of the experts' down matrices");
    options.text("--dense", "TYPE", &to->dense,
                 "Of attention, delta nets, shared experts, n-gram block and MTP");
    options.text("--hyper", "TYPE", &to->hyper, "Of the hyper-connections");
    options.text("--embedding", "TYPE", &to->embedding, "Of the token embedding");
    options.text("--head", "TYPE", &to->head, "Of the output head");
    options.text("--table", "TYPE", &to->table, "Of the n-gram table");
    options.check([to, quantize] { return check(*to, quantize); });
}

}  // namespace strata::cli
