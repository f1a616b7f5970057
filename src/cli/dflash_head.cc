// strata dflash-head: a DFlash2 draft with an embedding and a head of its own.
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

Status run(DraftHead& options) {
    options.request.vocabulary = options.vocabulary.value_or(std::vector<std::int32_t>{});
    Watched watched("dflash-head");
    return add_draft_head(options.request, watched.callback());
}

}  // namespace

Run add_dflash_head(Options& options) {
    const auto to = std::make_shared<DraftHead>();
    options.text("DRAFT", "DRAFT", &to->request.draft, "The DFlash2 draft: a GGUF file").required();
    options
        .text("--target", "T", &to->request.target,
              "The model that it drafts for: a GGUF file, a part of a split set, or a folder that "
              "holds one")
        .required();
    options.text("-o,--output", "OUT", &to->request.output, "Where to write; whole or not at all")
        .required();
    options.list(
        "--draft-vocab", "token id", &to->vocabulary,
        "The tokens that the draft can propose: 1,2,3, or @FILE for a file that holds such "
        "a list; fewer make a draft cheaper (default: all)");
    options.text("--type", "TYPE", &to->request.type,
                 concat("Number format of the head: ", writable_types(),
                        " (default: ", to->request.type, ")"));
    return [to] { return run(*to); };
}

}  // namespace strata::cli
