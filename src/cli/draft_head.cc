// strata dflash-head, strata mtp-head: a drafter with a head of its own.
#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/watched.h"
#include "strata/convert.h"

namespace strata::cli {
namespace {

struct DraftHead {
    DraftHeadRequest request;
    std::optional<std::vector<std::int32_t>> vocabulary;
};

using Add = Status (*)(const DraftHeadRequest& request, const ConvertProgress& progress);

Status run(DraftHead& options, const char* name, Add add) {
    options.request.vocabulary = options.vocabulary.value_or(std::vector<std::int32_t>{});
    Watched watched(name);
    return add(options.request, watched.callback());
}

std::shared_ptr<DraftHead> add_options(Options& options, const char* name, const char* drafter) {
    const auto to = std::make_shared<DraftHead>();
    options.text(name, name, &to->request.draft, drafter).required();
    options
        .text("--target", "T", &to->request.target,
              "The model that it drafts for: a GGUF file, a part of a split set, or a folder that "
              "holds one")
        .required();
    options
        .text("-o,--output", "OUT", &to->request.output,
              "Where to write; whole or not at all, in place of a file of this name")
        .required();
    options.list(
        "--draft-vocab", "token id", &to->vocabulary,
        "The tokens that can be proposed: 1,2,3, or @FILE for a file that holds such a list; fewer "
        "make a draft cheaper (default: all)");
    options.text("--type", "TYPE", &to->request.type,
                 concat("Number format of the head: ", writable_types(),
                        " (default: ", to->request.type, ")"));
    options.check([to] {
        TypeNames head;
        head.type = to->request.type;
        return check(head, false);
    });
    return to;
}

}  // namespace

Run add_dflash_head(Options& options) {
    const auto to = add_options(options, "DRAFT", "The DFlash2 draft: a GGUF file");
    return [to] { return run(*to, "dflash-head", add_draft_head); };
}

Run add_mtp_head(Options& options) {
    const auto to = add_options(options, "LAYER",
                                "The MTP layer: a GGUF file of a model that has one, or of the "
                                "layer alone");
    return [to] { return run(*to, "mtp-head", strata::add_mtp_head); };
}

}  // namespace strata::cli
